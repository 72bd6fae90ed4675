"The house rules that no single notebook can check."
import ast
import json
import os
import re
import subprocess
import sys
import shutil
from base64 import b64encode
from collections import Counter
from pathlib import Path

import pytest
from house import (CLOSED, COLLAPSED, NBS, ROOT, cells, closes, code_of, fold, folds, moves, notebooks,
    places, readme, section, small, stored, typed_numbers, unfolded, without_places)

from vssl_nb.papers.claims import CLAIMS

BIN = Path(sys.executable).parent
ENV = os.environ | {'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}'}
ENV.pop('IN_TEST', None) # nbdev_export does nothing, silently, where it is set
NUMBERED = [p for p in notebooks() if re.match(r'\d\d_', p.name)]
OPEN_LINES, OPEN_CHECKS = 25, 3 # of a cell that is seen without opening anything
BY_HAND = {'__init__.py', 'methods/__init__.py'} # not made from a notebook


def run(*command, cwd=ROOT):
    said = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    done = subprocess.run(command, cwd=cwd, env=ENV, text=True, **said)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}"
    return done.stdout


def module(path): return re.sub(r'^\d\d_', '', path.stem)


def is_exported(cell): return cell['cell_type'] == 'code' and re.match(r'#\|\s*exports?\b', cell['source'])


def exported(path): return [c['source'] for c in cells(path) if is_exported(c)]


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
    "Notebooks and settings alone, in an empty folder."
    there = tmp_path_factory.mktemp('house')
    shutil.copytree(NBS, there/'nbs', ignore=shutil.ignore_patterns('.ipynb_checkpoints', '_proc'))
    shutil.copy(ROOT/'settings.ini', there)
    return there


def test_notebooks_are_clean(copy):
    run('nbdev_clean', cwd=copy)
    dirty = [p.name for p in notebooks() if p.read_bytes() != (copy/p.relative_to(ROOT)).read_bytes()]
    assert not dirty, f'run nbdev_clean: {dirty}'


def test_library_is_exported(copy):
    run('nbdev_export', cwd=copy)
    made = {str(p.relative_to(copy/'vssl_nb')): p.read_text() for p in (copy/'vssl_nb').rglob('*.py')}
    here = {str(p.relative_to(ROOT/'vssl_nb')): p.read_text() for p in (ROOT/'vssl_nb').rglob('*.py')}
    for name in BY_HAND:
        made.pop(name, None)
        here.pop(name, None)
    assert sorted(made) == sorted(here), 'a module without a notebook, or a notebook that was not exported'
    different = [name for name in made if made[name] != here[name]]
    assert not different, f'run nbdev_export: {different}'


def test_readme_is_the_index():
    assert (ROOT/'README.md').read_text(encoding='utf-8') == readme(), 'run make readme'
    pictures = re.findall(r'!\[.+?\]\((images/\S+?)\)', markdown(NBS/'index.ipynb'))
    moving = [p for p in pictures if moves((NBS/p).read_bytes())]
    assert moving, 'a course about motion opens with a picture that moves'
    kinds = {c['cell_type'] for c in cells(NBS/'index.ipynb')}
    assert kinds == {'markdown'}, 'index.ipynb is the README: markdown only'


def markdown(path):
    if path.suffix=='.md': return path.read_text(encoding='utf-8')
    return '\n\n'.join(c['source'] for c in cells(path) if c['cell_type']=='markdown')


def anchors(path):
    "What `#…` may name in a file: ids that are written out, and headings as JupyterLab calls them."
    headings = re.findall(r'^#+ +(.+?) *$', markdown(path), re.M)
    names = {h.replace(' ', '-') for h in headings}
    if path.suffix=='.md': names = {n.lower() for n in names} # as GitHub calls them
    return {*re.findall(r'<a id="([^"]+)">', markdown(path)), *names}


def test_links_lead_somewhere():
    missing = []
    for path in [*notebooks(), ROOT/'README.md', ROOT/'CONTRIBUTING.md']:
        for link,anchor in re.findall(r'\]\(([^)\s#]*)#?([^)\s]*)', markdown(path)):
            if link.startswith('http'): continue
            there = path.parent/link if link else path
            if not there.exists() or anchor and anchor not in anchors(there):
                missing.append(f'{path.name}: {link}{anchor and "#" + anchor}')
    assert not missing, missing


IMPORTS = re.compile(r'^\s*(?:from vssl_nb(?:\.([\w.]+))? import ([\w, ()]+)|import vssl_nb\.([\w.]+))', re.M)


def test_notebooks_import_only_smaller_numbers():
    rooms = [p for p in NUMBERED if exported(p)] # a page without exports makes no module
    number = {module(p): int(p.name[:2]) for p in rooms}
    assert len(number) == len(rooms), 'two notebooks make the same module'
    wrong = []
    for path in NUMBERED:
        for c in cells(path):
            if c['cell_type'] != 'code': continue
            for m in IMPORTS.finditer(c['source']):
                one = m[1] or m[3]
                listed = [] if one else m[2].strip('()').split(',')
                for name in [one] if one else [n.split(' as ')[0].strip() for n in listed]:
                    if name == '__version__': continue
                    if m[1] == 'methods': name = f'methods.{m[2].split(",")[0].strip()}'
                    if name not in number:
                        wrong.append(f'{path.name} imports {name}, which no notebook makes')
                    elif number[name] >= int(path.name[:2]) and name != module(path):
                        wrong.append(f'{path.name} imports {name}')
    assert not wrong, wrong


def test_modules_have_names_that_say_something():
    assert not {module(p).split('.')[-1] for p in NUMBERED} & {'core', 'utils', 'helpers', 'base', 'common'}


def test_imports_stand_alone_in_export_cells():
    mixed = []
    for path in notebooks():
        for source in exported(path):
            kinds = {isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(source).body}
            if len(kinds) > 1: mixed.append(f'{path.name}: {source.splitlines()[1]}')
            if re.search(r'^from \S+ import \*', source, re.M): mixed.append(f'{path.name}: star import')
    assert not mixed, mixed


WIDTH, EXPORT_LINES, PAGE_CELLS = 110, 40, 60
# a single class or function that is clearer in one piece, in an export cell of its own
LONG_CELLS = {'13_momentum: Memory', '13_momentum: EncoderPair',
    '18_pretended_gpu: PretendedGPU', '22_driver: StepLog',
    '25_health: HealthMonitor', '25_health: reorder Reordered', '32_methods.coclr: CoCLR',
    '34_methods.iic: IIC', '37_methods.provico: ProViCo'}


def too_long(text): return [line for line in text.splitlines() if len(line) > WIDTH]


def test_lines_fit_on_a_page():
    "Of what is written by hand: in vssl_nb/ nbdev writes long lines of imports and names."
    by_hand = {p.name: [c['source'] for c in cells(p) if c['cell_type'] == 'code'] for p in notebooks()}
    scripts = [p for d in ('tests', 'benchmarks', 'data_scripts', 'docs') for p in (ROOT/d).rglob('*.py')]
    for path in [ROOT/'setup.py', *scripts]:
        by_hand[str(path.relative_to(ROOT))] = [path.read_text(encoding='utf-8')]
    wide = [(name, line) for name, texts in by_hand.items() for t in texts for line in too_long(t)]
    assert not wide, f'lines over {WIDTH} characters: {dict(Counter(n for n, _ in wide))}, such as {wide[0]}'


def test_pages_and_export_cells_are_short():
    long = {p.name: n for p in notebooks() if (n := len(cells(p))) > PAGE_CELLS}
    assert not long, f'pages of over {PAGE_CELLS} cells: {long}'
    found = {}
    for path in notebooks():
        for source in exported(path):
            code = [line for line in source.splitlines() if not line.startswith('#|')]
            if len(code) > EXPORT_LINES:
                parts = ast.parse(source).body
                names = [n.name for n in parts if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
                found[f'{path.stem}: {" ".join(names)}'] = len(code)
    new = {name: n for name, n in found.items() if name not in LONG_CELLS}
    assert not new, f'export cells of over {EXPORT_LINES} lines: {new}'
    assert not LONG_CELLS - found.keys(), f'no longer long, remove it here: {LONG_CELLS - found.keys()}'


CHECK = re.compile(r'\s*(test_\w+\(|assert\b|with expect_fail|expect_fail\()')


def test_checks_do_not_stand_between_idea_and_result():
    "What a reader sees without opening anything, exported code aside: short cells, few checks in one."
    wrong = []
    for path in notebooks():
        for c in unfolded(cells(path)):
            if c['cell_type'] != 'code' or is_exported(c): continue
            lines = c['source'].splitlines()
            checks = sum(bool(CHECK.match(line)) for line in lines)
            if len(lines) > OPEN_LINES or checks > OPEN_CHECKS:
                wrong.append(f'{path.name}: {len(lines)} lines, {checks} checks: {lines[0]}')
    assert not wrong, '\n'.join(['fold them, or begin with #| hide:', *wrong])


def lost_pictures(source):
    "Calls of `show.…` as a statement of their own that is not the last: Jupyter shows only the last."
    body = ast.parse(re.sub(r'^[%!].*$', '', source, flags=re.M)).body
    lines = [n.value for n in body[:-1] if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    called = [ast.unparse(n.func) for n in lines]
    return [name for name in called if name.startswith('show.') and name != 'show.save_picture']


def test_no_picture_is_lost():
    lost = [(p.name, name) for p in notebooks() for c in cells(p)
        if c['cell_type'] == 'code' for name in lost_pictures(c['source'])]
    assert not lost, f'give them to display(), or to a cell of their own: {lost}'
    assert lost_pictures('show.bars(x)\nprint(1)') == ['show.bars']
    assert not lost_pictures('a = 1\nshow.bars(x)')


def test_the_question_stands_before_the_code():
    late = {p.name: at for p in notebooks() for at, c in enumerate(cells(p))
        if c['cell_type'] == 'markdown' and re.search('^## The question', c['source'], re.M) and at > 1}
    assert not late, f'move the cell up, below the title: {late}'


def test_no_public_name_in_two_modules():
    where = {}
    for path in sorted((ROOT/'vssl_nb').rglob('*.py')):
        for node in ast.parse(path.read_text(encoding='utf-8')).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__':
                for name in ast.literal_eval(node.value): where.setdefault(name, []).append(path.stem)
    assert len(where) > 200, 'this no longer finds __all__'
    assert not (twice := {name: m for name, m in where.items() if len(m) > 1}), twice


def private(name): return name.startswith('_') and not name.endswith('__')


def test_no_module_uses_a_private_name_of_another():
    wrong = []
    for path in notebooks():
        code = [c['source'] for c in cells(path) if c['cell_type'] == 'code']
        code = [re.sub(r'^\s*[%!].*$', '', source, flags=re.M) for source in code]
        nodes = [node for source in code for node in ast.walk(ast.parse(source))]
        froms = [n for n in nodes if isinstance(n, ast.ImportFrom) and (n.module or '').startswith('vssl_nb')]
        wrong += [f'{path.name}: {n.module}.{a.name}' for n in froms for a in n.names if private(a.name)]
        # of `from vssl_nb import show`: `show._x`
        rooms = {a.asname or a.name for n in froms for a in n.names}
        inside = [n for n in nodes if isinstance(n, ast.Attribute) and private(n.attr)]
        wrong += [f'{path.name}: {ast.unparse(n)}' for n in inside if ast.unparse(n.value) in rooms]
    assert not wrong, wrong


def test_methods_do_not_import_each_other():
    text = {p.name: '\n'.join(exported(p)) for p in NUMBERED if 30 <= int(p.name[:2]) < 40}
    assert not [name for name, source in text.items() if 'vssl_nb.methods' in source]


def test_pages_open_with_a_title_and_one_sentence():
    bad = [p.name for p in NUMBERED if not re.match(r'# .+\n+> .+', cells(p)[0]['source'])]
    assert not bad, bad


def test_checks_and_answers_are_folded():
    wrong = []
    for path in notebooks():
        found = cells(path)
        for i, c in enumerate(found):
            if folds(c) != (c['metadata'].get(COLLAPSED) is True):
                wrong.append(f'{path.name}: {c["source"].splitlines()[0]}')
            if closes(c) != (c['metadata'].get('jupyter') == CLOSED):
                line = c['source'].splitlines()[1]
                wrong.append(f'{path.name}: {line}: open, or closed without #| hide or #| echo: false')
            if not folds(c): continue
            below = section(found, i)
            if not below: wrong.append(f'{path.name}: nothing to fold below {c["source"]!r}')
            if any(is_exported(b) for b in below): wrong.append(f'{path.name}: exported code is folded')
    assert not wrong, f'python tests/house.py fold: {wrong}'


def test_results_in_prose_are_computed_or_have_a_source():
    sources = {'dossiers/released.ipynb'} # says of every number where it is from
    pages = [p for p in notebooks() if p.name not in sources]
    typed = {p.name: hits for p in pages if (hits := typed_numbers(p))}
    assert not typed, typed


def test_typed_numbers_are_found(tmp_path):
    prose = ['R@1 is 51.2 %', 'loss fell to 0.123', 'by 17 points', 'R@1 33.1 [paper](x)', 'three of 4',
        '44 % right']
    page = [{'cell_type': 'markdown', 'source': '\n\n'.join(prose)},
        {'cell_type': 'code', 'source': 'x', 'outputs': [{'text': 'share 0.4398, loss .1234'}]},
        {'cell_type': 'markdown', 'source': '## Checks'}, {'cell_type': 'markdown', 'source': '99 %'}]
    (tmp_path/'page.ipynb').write_text(json.dumps({'cells': page}))
    assert typed_numbers(tmp_path/'page.ipynb') == ['R@1 is 51.2 %', 'by 17 points']


def exercises(path):
    "Numbered questions, cells of code beside them, and cells of code that prove the answers."
    found = cells(path)
    at = [i for i, c in enumerate(found) if c['source'].startswith('## Exercises')]
    if not at: return 0, 0, 0
    below = section(found, at[0])
    asked = [found[at[0]], *unfolded(below)]
    questions = re.findall(r'^\d+\. ', '\n'.join(c['source'] for c in asked), re.M)
    answers = [c for i, c in enumerate(below) if folds(c) for c in section(below, i)]
    proofs = [re.search(r'\bassert\b|\btest_\w+\(', c['source']) for c in answers if c['cell_type']=='code']
    return len(questions), sum(c['cell_type']=='code' for c in asked), sum(map(bool, proofs))


def test_pages_have_exercises_that_check_themselves():
    got = {p.name: exercises(p) for p in NUMBERED}
    few = {name: n for name, n in got.items() if n[0] < 3 or not n[1] or not n[2]}
    assert not few, f'questions, cells to change, cells that prove an answer: {few}'


def test_readme_counts_the_claims():
    rows = json.loads((ROOT/'results'/'claims.json').read_text(encoding='utf-8'))
    tested = [r for r in rows if r['held'] is not None]
    said = re.search(r'tests (\d+) of (\d+) .*?: (\d+) hold', readme())
    assert said, 'how many were tested, and how many hold?'
    assert [int(n) for n in said.groups()] == [len(tested), len(CLAIMS), sum(r['held'] for r in tested)]


def test_fold_folds_what_it_should(tmp_path, copy):
    "JupyterLab's metadata is set where it belongs and nowhere else, and nbdev_clean leaves it alone."
    heading = {'# Checks': False, '## Checks': True, '### Answer': True, '## Answers': True,
        '## Checks of flow': True, '## Checksums': False, '## What it checks': False}
    made = [{'cell_type': 'markdown', 'id': f'{i:08d}', 'metadata': {COLLAPSED: not yes}, 'source': [h]}
        for i, (h, yes) in enumerate(heading.items())]
    code = {'#| hide\nimport re': True, '#|hide\n1': True, 'x = 1 #| hide': False, '#| hidden': False,
        '#| echo: false\n1': True, '#| echo: true\n1': False}
    made += [{'cell_type': 'code', 'id': f'c{i:07d}', 'metadata': {}, 'source': [s], 'outputs': [],
        'execution_count': None} for i, s in enumerate(code)]
    path = copy/'nbs'/'folded.ipynb'
    path.write_text(json.dumps({'cells': made, 'metadata': {}, 'nbformat': 4, 'nbformat_minor': 5}))
    fold(path)
    once = path.read_bytes()
    text, rest = cells(path)[:len(heading)], cells(path)[len(heading):]
    assert {c['source']: c['metadata'].get(COLLAPSED, False) for c in text} == heading
    assert {c['source']: c['metadata'].get('jupyter') == CLOSED for c in rest} == code
    run('nbdev_clean', '--fname', str(path), cwd=copy)
    assert path.read_bytes() == once
    path.unlink()
    found = [{'cell_type': 'markdown', 'source': s} for s in ('## Checks', 'a', '### b', '## c', 'd')]
    assert [c['source'] for c in section(found, 0)] == ['a', '### b'] and section(found, 3) == found[4:]


def test_pictures_that_move_stay_as_they_are():
    "Storing a page makes other pictures small; `show.Loop` has done it, and re-encoded it would stand still."
    import numpy as np
    from vssl_nb.show import Loop
    frames = np.zeros((3, 400, 700, 3), np.uint8)
    for t in range(3):
        frames[t, 20*t:20*t + 300] = np.random.default_rng(t).integers(0, 255, (300, 700, 1))[:, :1]
    for pictures in frames, frames[:1]:
        raw = Loop(pictures).png
        kept = small({'output_type': 'display_data', 'data': {'image/png': b64encode(raw).decode()}})['data']
        assert (kept.get('image/png') == b64encode(raw).decode()) == (len(pictures) > 1), kept.keys()


def test_outputs_name_no_folder_of_a_machine(tmp_path):
    found = {p.name: said for p in notebooks() if (said := places(p))}
    assert not found, f'make pages PAGES=… stores them without: {found}'
    said = f'no such file, seen from {ROOT}/nbs or /tmp/tmpab12/x; see /home/ann/films'
    assert without_places(said) == 'no such file, seen from …/nbs or /tmp/…/x; see /home/ann/films'
    page = {'cells': [{'cell_type': 'code', 'source': [], 'outputs': [{'text': [said]}]}]}
    (tmp_path/'p.ipynb').write_text(json.dumps(page))
    assert '/home/ann/films' in places(tmp_path/'p.ipynb')


def test_outputs_belong_to_the_code():
    known = stored()
    old = [str(p.relative_to(ROOT)) for p in notebooks()
        if known.get(str(p.relative_to(NBS)), {}).get('code') != code_of(p)]
    assert not old, f'outputs of other code than stands above the checks: make pages PAGES="{" ".join(old)}"'


def test_what_counts_as_other_code(tmp_path):
    def code(*sources):
        path = tmp_path/'page.ipynb'
        kinds = ['markdown' if s.startswith('##') else 'code' for s in sources]
        made = [{'cell_type': k, 'source': s} for k, s in zip(kinds, sources)]
        path.write_text(json.dumps({'cells': made}))
        return code_of(path)
    one = code('def f(x): # a number\n    "Half."\n    return x/2')
    assert one == code('def f(\n    x, # another word\n):\n    "The half of it."\n    return x/2 # so')
    assert one != code('def f(x): return x/3')
    assert one == code('def f(x): return x/2', '## Checks', 'assert f(4)==2')
    assert one == code('def f(x): return x/2', '#| eval: false\nf(3)') and code('!ls') != code('!pwd')


def test_no_page_keeps_a_reader_for_over_two_minutes():
    slow = {page: s['seconds'] for page, s in stored().items() if s['seconds'] > 120}
    assert not slow, f'measured when the outputs were stored: {slow}'


def test_outputs_stay_small():
    size = {p.name: sum(len(str(c.get('outputs', ''))) for c in cells(p)) for p in notebooks()}
    assert not {k: v for k, v in size.items() if v > 150_000}, size
    assert sum(size.values()) < 4_200_000 # 3 MB for the first 45 pages; there are 66 now


def test_every_room_is_in_the_sidebar():
    listed = (NBS/'sidebar.yml').read_text()
    assert not [p.name for p in notebooks() if p.name not in listed]


def test_ruff(): run('ruff', 'check', '--no-cache', '.')


def test_types(): run('mypy', '--no-error-summary')


def test_settings_name_what_the_library_imports():
    settings = (ROOT/'settings.ini').read_text()
    required = re.search(r'^requirements = (.*)$', settings, re.M)[1]
    known = {re.split(r'[><=,]', r)[0].lower() for r in required.split()}
    known |= {'pil', 'sklearn', 'cv2', 'vssl_nb', *sys.stdlib_module_names}
    used = set()
    for path in (ROOT/'vssl_nb').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import): used |= {n.name.split('.')[0] for n in node.names}
            if isinstance(node, ast.ImportFrom) and not node.level: used.add(node.module.split('.')[0])
    assert {u.lower() for u in used} <= known, {u.lower() for u in used} - known


def test_pages_write_modules_of_their_own():
    "Several pages run in one process, and a module that one of them has imported stays for the others."
    ways, written = (r'%%writefile \S*?/(\w+)\.py', r"/'(\w+)\.py'\)\.write_text"), {}
    for page in notebooks():
        text = ''.join(''.join(c['source']) for c in cells(page) if c['cell_type'] == 'code')
        for name in {name for way in ways for name in re.findall(way, text)}:
            if f'{name}:' in text: written.setdefault(name, set()).add(page.name)
    twice = {name: pages for name, pages in written.items() if len(pages) > 1}
    assert written and not twice, f'written by several pages: {twice}'
