"""House-keeping: the README from `index.ipynb`, pages executed with outputs, checks folded.

    python tests/house.py readme
    python tests/house.py pages [nbs/lessons/04_losses.ipynb …]
    python tests/house.py fold [nbs/lessons/04_losses.ipynb …]
    python tests/house.py typed [nbs/lessons/04_losses.ipynb …]
"""
import ast
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NBS = ROOT/'nbs'
STORED = ROOT/'results'/'pages.json' # with which code the outputs of a page were made, and how long it took
SKIPPED = re.compile(r'^\s*#\|\s*(eval:\s*false|cuda|slow|data)', re.M) # cells that are not run here
FOLDS = re.compile(r'#{2,6} (checks|answers?)\b', re.I) # docs/conf.py and nbs/fold.html fold the same ones
HIDDEN = re.compile(r'#\|\s*(hide\b|echo:\s*false\b)') # of the second kind the site shows the output
COLLAPSED = 'jp-MarkdownHeadingCollapsed' # JupyterLab's names; settings.ini makes nbdev_clean keep them
CLOSED = {'source_hidden': True} # under 'jupyter': a bar to click on stands for the code


def notebooks() -> list[Path]:
    "All notebooks in reading order."
    made = {'.ipynb_checkpoints', '_proc'}
    return sorted(p for p in NBS.rglob('*.ipynb') if not made & {*p.parts})


def cells(path: Path) -> list[dict]:
    "The cells of a notebook, each source as one string."
    found = json.loads(path.read_text(encoding='utf-8'))['cells']
    return [c | {'source': ''.join(c['source'])} for c in found]


def readme() -> str:
    "The README: the markdown of `index.ipynb`, with links as they look from the top folder."
    text = '\n\n'.join(c['source'] for c in cells(NBS/'index.ipynb') if c['cell_type'] == 'markdown')
    # nbs/ is where the notebook's relative links start; the README sits one folder above
    text = re.sub(r'(\]\()(?!https?:|#|\.\./)([^)\s]+\))', r'\1nbs/\2', text)
    return text.replace('](../', '](') + '\n'


def folds(cell: dict) -> bool:
    "Is this the heading of a section that only those open who want it?"
    return cell['cell_type'] == 'markdown' and bool(FOLDS.match(''.join(cell['source'])))


def closes(cell: dict) -> bool:
    "Is this code that only those open who want it: imports, checks, what only makes a table or a picture?"
    return cell['cell_type'] == 'code' and bool(HIDDEN.match(''.join(cell['source'])))


def section(found: list[dict], at: int) -> list[dict]:
    "The cells below the heading in cell `at`, up to the next heading of its level or above."
    level = len(found[at]['source']) - len(found[at]['source'].lstrip('#'))
    below = found[at + 1:]
    for i, cell in enumerate(below):
        if cell['cell_type'] == 'markdown' and re.match(r'#{1,%d} ' % level, cell['source']): return below[:i]
    return below


def unfolded(found: list[dict]) -> list[dict]:
    "The cells that a reader sees without opening a section."
    hidden = {id(b) for i, c in enumerate(found) if folds(c) for b in section(found, i)}
    return [c for c in found if id(c) not in hidden and not closes(c)]


NUMBER = r'(?<![\w.@#-])\d+(?:,\d{3})*(?:\.\d+)?'
RESULT = re.compile('|'.join((
    rf'R@\d+[^.;|\n\d]{{0,40}}?({NUMBER})', rf'({NUMBER})\s*(?:\\?%|percent|points)',
    rf'\bloss[^.;|\n\d]{{0,25}}?({NUMBER})', rf'({NUMBER})[^.;|\n\d]{{0,12}}?\bloss\b')))


def typed_numbers(path: Path) -> list[str]:
    """Results in prose (next to R@, %, points, loss) that nothing on the page computes and no link gives
    a source: they go stale. A number is computed if an output or a cell of code has one that rounds to it."""
    found = cells(path)
    code = [c for c in found if c['cell_type'] == 'code']
    shown = [o for c in code for o in c.get('outputs', [])]
    said = [str(o.get('text', '')) for o in shown]
    said += [str(data) for o in shown for kind, data in o.get('data', {}).items() if kind.startswith('text/')]
    numbers = re.findall(r'\d+(?:,\d{3})*(?:\.\d+)?|\.\d+', '\n'.join([c['source'] for c in code] + said))
    known = [float(n.replace(',', '')) for n in numbers]

    def computed(number: str) -> bool:
        digits, value = len(number.partition('.')[2]), float(number.replace(',', ''))
        return any(abs(round(k*scale, digits) - value) < 1e-9 for k in known for scale in (1, 100))

    prose = [b for c in unfolded(found) if c['cell_type'] == 'markdown' for b in c['source'].split('\n\n')]
    hits = [(block, m) for block in prose if '](' not in block for m in RESULT.finditer(block)]
    return [block[max(0, m.start() - 40):m.end() + 20] for block, m in hits
        if not computed(next(g for g in m.groups() if g))]


def fold(path: Path) -> None:
    "Fold checks and answers, and nothing else."
    nb = json.loads(path.read_text(encoding='utf-8'))
    for cell in nb['cells']:
        cell['metadata'].pop(COLLAPSED, None)
        cell['metadata'].pop('jupyter', None)
        if folds(cell): cell['metadata'][COLLAPSED] = True
        if closes(cell): cell['metadata']['jupyter'] = CLOSED
    path.write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + '\n', encoding='utf-8')


def meaning(source: str) -> str:
    "Python code without comments, docments, layout and docstrings; other code as it is."
    try: tree = ast.parse(source)
    except SyntaxError: return source
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def code_of(path: Path) -> str:
    "A digest of the code above the checks: where it changes, the stored outputs no longer belong to it."
    found = cells(path)
    checks = {id(b) for i, c in enumerate(found) if folds(c) for b in section(found, i)}
    code = [meaning(c['source']) for c in found
        if c['cell_type'] == 'code' and id(c) not in checks and not SKIPPED.search(c['source'])]
    return hashlib.sha256('\n'.join(code).encode()).hexdigest()[:16]


def execute(path: Path) -> None:
    """Run a notebook as a reader would and store what it shows, with which code, and how long it took.
    Progress bars and widgets are not stored."""
    import nbformat
    from nbclient import NotebookClient
    from nbdev.clean import clean_nb
    from fastcore.nbio import read_nb, write_nb

    nb = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(nb)
    for cell in run.cells:
        if cell.cell_type == 'code' and SKIPPED.search(cell.source):
            cell.metadata['skipped'], cell.source = cell.source, ''
    begun = time.monotonic()
    NotebookClient(run, timeout=900, resources={'metadata': {'path': str(path.parent)}}).execute()
    seconds = time.monotonic() - begun
    for cell in run.cells:
        if cell.cell_type != 'code': continue
        cell.source = cell.metadata.pop('skipped', cell.source)
        cell.outputs = [small(o) for o in cell.outputs if keep(o)]
    with tempfile.NamedTemporaryFile('w', dir=path.parent, suffix='.tmp', delete=False) as f:
        nbformat.write(run, f)
    os.replace(f.name, path)
    nb = read_nb(path)
    clean_nb(nb, allowed_cell_metadata_keys=[COLLAPSED, 'jupyter'])
    write_nb(nb, path)
    remember(path, seconds)


def stored() -> dict[str, dict]:
    "What is known of the stored outputs, by page."
    return json.loads(STORED.read_text(encoding='utf-8'))['pages'] if STORED.exists() else {}


def remember(path: Path, seconds: float) -> None:
    "Note with which code a page was executed, and where; pages that are gone are forgotten."
    import platform
    import torch
    now = {'code': code_of(path), 'seconds': round(seconds, 1), 'date': time.strftime('%Y-%m-%d'),
        'where': f'{os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}'}
    there = {str(p.relative_to(NBS)) for p in notebooks()}
    pages = {k: v for k, v in stored().items() if k in there} | {str(path.relative_to(NBS)): now}
    STORED.write_text(json.dumps({'what': 'tests/house.py pages: the outputs that the pages keep',
        'pages': dict(sorted(pages.items()))}, indent=1) + '\n', encoding='utf-8')


def keep(output: dict) -> bool:
    "Is this output worth storing?"
    if output['output_type'] == 'stream': return output['name'] == 'stdout'
    return 'application/vnd.jupyter.widget-view+json' not in output.get('data', {})


def moves(png: bytes) -> bool:
    "Is this an animated PNG? The chunk that says so stands before the first picture."
    return b'acTL' in png[:png.find(b'IDAT')]


def without_places(text: str) -> str:
    "A printed text without folders of the machine that ran the page."
    return re.sub(r'/tmp/\w+', '/tmp/…', text.replace(str(ROOT), '…'))


# a folder below one in which people keep their work; what stands in /tmp is a page's own
PLACE = re.compile(r'(?<![\w.…:/])/(?:home|root|work|opt|Users|mnt|srv|var|usr|builds?)/[^\s\'",;)]*')


def places(path: Path) -> list[str]:
    "Folders of some machine in the stored outputs of a page."
    shown = [o for c in cells(path) for o in c.get('outputs', [])]
    said = [o.get('text', '') for o in shown]
    said += [data for o in shown for kind, data in o.get('data', {}).items() if kind.startswith('text/')]
    return PLACE.findall('\n'.join(''.join(text) for text in said))


def small(output: dict) -> dict:
    "An output without what is different in every run, and pictures in few bytes."
    from io import BytesIO
    from base64 import b64decode, b64encode
    from PIL import Image
    if 'text' in output: output['text'] = without_places(output['text'])
    for kind, data in output.get('data', {}).items():
        if kind.startswith('text/') and isinstance(data, str): output['data'][kind] = without_places(data)
    def at_most(picture, width):
        if picture.width <= width: return picture
        return picture.resize((width, round(picture.height*width/picture.width)), Image.Resampling.LANCZOS)
    if 'image/png' in output.get('data', {}):
        output['data'].pop('image/jpeg', None) # Pillow offers both
        raw = b64decode(output['data'].pop('image/png'))
        if moves(raw): # `show.Loop` has made it small
            output['data']['image/png'] = b64encode(raw).decode()
            return output
        picture = Image.open(BytesIO(raw)).convert('RGB')
        picture.info.clear() # of what the RGB picture no longer has
        if len(raw) > 30_000: picture = at_most(picture, 560)
        few = BytesIO()
        picture.quantize(64, kmeans=3).save(few, 'PNG', optimize=True)
        # as good as 20 KB allow
        for width, quality in ((560, 65), (560, 50), (440, 50), (440, 32), (340, 40)):
            photo = BytesIO()
            at_most(picture, width).save(photo, 'JPEG', quality=quality, optimize=True)
            if len(photo.getvalue()) < 20_000: break
        # drawings stay sharp as PNG; strips of video frames are photographs
        png, jpeg = few.getvalue(), photo.getvalue()
        kind, best = ('png', min(png, raw, key=len)) if len(png) < max(20_000, len(jpeg)) else ('jpeg', jpeg)
        output['data'][f'image/{kind}'] = b64encode(best).decode()
    return output


def main() -> None:
    what, *paths = sys.argv[1:] or ['']
    if what == 'readme': (ROOT/'README.md').write_text(readme(), encoding='utf-8')
    elif what == 'pages':
        for path in [Path(p).resolve() for p in paths] or notebooks():
            print(path.relative_to(ROOT), flush=True)
            execute(path)
    elif what in ('fold', 'typed'):
        for path in [Path(p).resolve() for p in paths] or notebooks():
            if what == 'fold': fold(path)
            else: print('\n'.join(f'{path.name}: {hit!r}' for hit in typed_numbers(path)))
    else: sys.exit(__doc__)


if __name__ == '__main__': main()
