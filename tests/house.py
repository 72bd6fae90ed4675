"""House-keeping: the README made from `index.ipynb`, and the pages executed with their outputs stored.

    python tests/house.py readme
    python tests/house.py pages [nbs/11_losses.ipynb …]
"""
import json
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NBS = ROOT/'nbs'


def notebooks() -> list[Path]:
    "All notebooks in reading order."
    return sorted(p for p in NBS.rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts and p.parent.name != '_proc')


def cells(path: Path) -> list[dict]:
    "The cells of a notebook, each source as one string."
    return [c | {'source': ''.join(c['source'])} for c in json.loads(path.read_text(encoding='utf-8'))['cells']]


def readme() -> str:
    "The README: the markdown of `index.ipynb`, with links as they look from the top folder."
    text = '\n\n'.join(c['source'] for c in cells(NBS/'index.ipynb') if c['cell_type'] == 'markdown')
    # nbs/ is where the notebook's relative links start; the README sits one folder above
    text = re.sub(r'(\]\()(?!https?:|#|\.\./)([^)\s]+\))', r'\1nbs/\2', text)
    return text.replace('](../', '](') + '\n'


def execute(path: Path) -> None:
    "Run a notebook as a reader would and store what it shows; progress bars and widgets are not stored."
    import nbformat
    from nbclient import NotebookClient
    from nbdev.clean import clean_nb
    from fastcore.nbio import read_nb, write_nb

    nb = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(nb)
    skip = re.compile(r'^\s*#\|\s*(eval:\s*false|cuda|slow|data)', re.M)
    for cell in run.cells:
        if cell.cell_type == 'code' and skip.search(cell.source):
            cell.metadata['skipped'], cell.source = cell.source, ''
    NotebookClient(run, timeout=900, resources={'metadata': {'path': str(path.parent)}}).execute()
    for cell in run.cells:
        if cell.cell_type != 'code': continue
        cell.source = cell.metadata.pop('skipped', cell.source)
        cell.outputs = [small(o) for o in cell.outputs if keep(o)]
    with tempfile.NamedTemporaryFile('w', dir=path.parent, suffix='.tmp', delete=False) as f: nbformat.write(run, f)
    os.replace(f.name, path)
    nb = read_nb(path)
    clean_nb(nb)
    write_nb(nb, path)


def keep(output: dict) -> bool:
    "Is this output worth storing?"
    if output['output_type'] == 'stream': return output['name'] == 'stdout'
    return 'application/vnd.jupyter.widget-view+json' not in output.get('data', {})


def small(output: dict) -> dict:
    "An output without what is different in every run, and pictures in few bytes."
    from io import BytesIO
    from base64 import b64decode, b64encode
    from PIL import Image
    if 'text' in output: output['text'] = re.sub(r'/tmp/\w+', '/tmp/…', output['text'])
    for kind, data in output.get('data', {}).items():
        if kind.startswith('text/') and isinstance(data, str): output['data'][kind] = re.sub(r'/tmp/\w+', '/tmp/…', data)
    if 'image/png' in output.get('data', {}):
        output['data'].pop('image/jpeg', None) # Pillow offers both
        raw = b64decode(output['data'].pop('image/png'))
        picture = Image.open(BytesIO(raw)).convert('RGB')
        if len(raw) > 30_000 and picture.width > 560: picture = picture.resize((560, round(picture.height*560/picture.width)), Image.Resampling.LANCZOS)
        few = BytesIO()
        picture.quantize(64).save(few, 'PNG', optimize=True)
        for width, quality in ((560, 65), (560, 50), (440, 50), (440, 32), (340, 40)): # as good as 20 KB allow
            photo = BytesIO()
            smaller = picture if picture.width <= width else picture.resize((width, round(picture.height*width/picture.width)), Image.Resampling.LANCZOS)
            smaller.save(photo, 'JPEG', quality=quality, optimize=True)
            if len(photo.getvalue()) < 20_000: break
        # drawings stay sharp as PNG; strips of video frames are photographs
        kind, best = ('png', few) if len(few.getvalue()) < max(20_000, len(photo.getvalue())) else ('jpeg', photo)
        output['data'][f'image/{kind}'] = b64encode(best.getvalue() if kind == 'jpeg' or len(best.getvalue()) < len(raw) else raw).decode()
    return output


def main() -> None:
    what, *paths = sys.argv[1:] or ['']
    if what == 'readme': (ROOT/'README.md').write_text(readme(), encoding='utf-8')
    elif what == 'pages':
        for path in [Path(p).resolve() for p in paths] or notebooks():
            print(path.relative_to(ROOT), flush=True)
            execute(path)
    else: sys.exit(__doc__)


if __name__ == '__main__': main()
