"""The papers' numbers with their sources, what the texts claim, and which claims hold here.

Every number of the papers' tables, of the released READMEs and of users' reports is in `published.csv`: a
line is a printed row on one task and dataset; `work` (the method under one name over all papers) is left out
where it is the printed name, and so is `kind` where a number is quoted. The claims are in `claims.csv`."""

import json, math, re, statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..training.config import read_lines

@dataclass(frozen=True)
class Published:
    "One number as it is printed, with its setting."
    paper:str # whose table it is in, or whose code was run
    table:str # 'table 6', 'text', 'README', 'issue #54'
    method:str # name of the row as printed
    task:str # 'retrieval', 'linear', 'finetune', 'scratch' or 'mining'
    test:str # dataset measured on
    metric:str # 'r1', 'r5', ..., 'top1', 'pmr', 'cmr': percent; 'classes': a number of classes
    value:float # as printed
    work:str='' # the method under one name over all papers
    kind:str='quoted' # 'own', 'quoted', 'release' or 'user'
    setting:str='' # what else tells the row from others of its table
    pretrain:str='' # dataset pretrained on; '': not given
    backbone:str=''
    frames:int|None=None # of a clip
    size:int|None=None # side of a clip, pixels
    view:str='' # 'rgb', 'flow', 'residual' or 'rgb+flow'; '': not given
    split:int|None=None # of the test dataset; None: not given
    protocol:str='' # where the paper or its code defines the measurement
    ablation:bool=False # from a table that varies settings
    note:str=''

    @property
    def source(self)->str: return f'{self.paper}, {"released " if self.table=="README" else ""}{self.table}'

METRICS = ('r1', 'r5', 'r10', 'r20', 'r50', 'top1', 'pmr', 'cmr', 'classes') # columns of published.csv

def _published(line:dict[str,str])->list[Published]: # a number for each metric
    values = {m: line.pop(m) for m in METRICS}
    known:dict[str,Any] = {'work': line['method']} | {k: v for k,v in line.items() if v}
    known |= {k: int(line[k]) for k in ('frames', 'size', 'split') if line[k]}
    known['ablation'] = line['ablation']=='yes'
    return [Published(metric=m, value=float(v), **known) for m,v in values.items() if v]

ROWS:tuple[Published,...] = tuple(r for line in read_lines('papers/published.csv') for r in _published(line))

def markdown(rows:Iterable[Published])->str: # in the order to show them -> Markdown, a line per printed row
    "Published numbers as a table; what all its lines share stands above it. `ValueError` for none."
    rows = list(rows)
    if not rows: raise ValueError('there are no published numbers to put in a table')
    heads = ('source', 'method', 'setting', 'pretrained', 'backbone', 'view', 'input')
    lines:dict[tuple[str,...],dict[str,str]] = {}
    for r in rows:
        key = (r.source, r.method, r.setting, r.pretrain, r.backbone, r.view,
            'x'.join(str(n) for n in (r.frames, r.size) if n))
        lines.setdefault(key, {})[f'{r.test} {r.task} {r.metric}'] = f'{r.value:g}'
    columns = list(dict.fromkeys(c for values in lines.values() for c in values))
    filled = [i for i in range(len(heads)) if any(line[i] for line in lines)]
    shared = [i for i in filled if i > 1 and len(lines) > 1 and len({line[i] for line in lines})==1]
    where = [i for i in filled if i not in shared]
    table = [[heads[i] for i in where] + columns, [':---']*len(where) + ['---:']*len(columns)]
    table += [[line[i] or '–' for i in where] + [values.get(c, '–') for c in columns]
        for line,values in lines.items()]
    common = ', '.join(f'{heads[i]} {next(iter(lines))[i]}' for i in shared)
    return f'All: {common}\n\n'*bool(shared) + '\n'.join('| ' + ' | '.join(line) + ' |' for line in table)

WORDS:dict[str,dict[str,str]] = {} # 'work', 'pretrain', 'view', 'backbone': word of a name -> as printed
for _line in read_lines('papers/words.csv'):
    WORDS.setdefault(_line['kind'], {})[_line['word']] = _line['printed']
TASKS = {'retrieval': 'retrieval', 'linear': 'linear', 'probe': 'linear', 'finetune': 'finetune',
    'scratch': 'scratch', 'mining': 'mining'}

def parts(name:str)->dict[str,str]: # of a recipe -> 'work', 'pretrain', 'view', 'backbone'; '': it has none
    "What the name of a recipe tells, in the words of the tables."
    words = re.split('[-_ ]', name.lower())
    named = {kind: next((known[w] for w in words if w in known), '') for kind,known in WORDS.items()}
    return named | ({'work': 'IIC+CPR'} if {'iic', 'cpr'} <= set(words) else {})

def match(
    name:str, # of a recipe, such as 'infonce-ucf101-rgb'
    task:str='retrieval', # a key of TASKS
    metric:str='r1',
    test:str='', # dataset measured on; '': the one pretrained on, for Kinetics-400 UCF101
    view:str='', # of the run, where the name has none
    backbone:str='', # likewise
)->list[Published]: # the nearest first; empty where nothing was published
    "The published numbers of the setting of a recipe. `ValueError` for an unknown task."
    if task not in TASKS: raise ValueError(f'task={task!r} is unknown; there are: {", ".join(TASKS)}')
    named = parts(name)
    work, pretrain, view = named['work'], named['pretrain'], view or named['view']
    known = WORDS['backbone']
    backbone = known.get(re.sub('[-_]', '', backbone).lower(), backbone) or named['backbone']
    if not work or not pretrain: return []
    test = test or ('UCF101' if pretrain=='Kinetics-400' else pretrain)
    rows = [r for r in ROWS if (r.work, r.task, r.metric, r.test)==(work, TASKS[task], metric, test)
        and pretrain in r.pretrain.split('/') and (not backbone or r.backbone in (backbone, ''))
        and (r.view==view or not view or not r.view and '+' not in view)]
    whole = [r for r in rows if not r.ablation] or [r for r in rows if not r.setting] or rows
    return sorted(whole, key=lambda r: (not r.view, ('own', 'quoted', 'release', 'user').index(r.kind),
        not r.method.endswith('†'), 'first version' in r.setting, bool(r.setting)))

@dataclass(frozen=True)
class Claim:
    "What a text claims, as inequalities between named numbers."
    number:int # in the ledger
    paper:str # 'CPR', ...
    where:str # table, figure or section
    what:str # the measure here, and the paper's where it differs: 'R@1', 'PMR in the last epoch'
    chain:str # 'a < b <= c', several separated by '; '

    @property
    def links(self)->list[tuple[str,str,str]]: # (a, '<' or '<=', b)
        "The inequalities of neighbours."
        chains = [re.split(' (<=?) ', part) for part in self.chain.split('; ')]
        return [(w[i], w[i+1], w[i+2]) for w in chains for i in range(0, len(w)-2, 2)]

def holds(
    claim:Claim,
    numbers:Mapping[str,Sequence[float]], # name in the chain -> a number for each seed, all in one order
)->bool|None: # None: fewer than three seeds
    "Whether the mean paired difference of each link is above its standard error. `ValueError`."
    for name in (n for a,_,b in claim.links for n in (a, b)):
        if name not in numbers:
            raise ValueError(f'claim {claim.number}: {claim.chain}, and there is no number for {name!r}')
    n = len(next(iter(numbers.values())))
    if any(len(x)!=n for x in numbers.values()):
        raise ValueError(f'claim {claim.number}: some numbers come from more seeds than others; '
            'give each a number for each seed')
    if n < 3: return None
    def link(a, sign, b):
        d = [y-x for x,y in zip(numbers[a], numbers[b])]
        error = statistics.stdev(d)/math.sqrt(n)
        return statistics.mean(d) > error if sign=='<' else statistics.mean(d) >= -error
    return all(link(*x) for x in claim.links)

_CLAIMS = {int(line['number']): line for line in read_lines('papers/claims.csv')}
CLAIMS = {n: Claim(n, *(line[k] for k in ('paper', 'where', 'what', 'chain'))) for n,line in _CLAIMS.items()}
UNTESTED = {n: line['untested'] for n,line in _CLAIMS.items() if line['untested']} # claim -> why

LEDGER = Path(__file__).parents[2]/'results'/'claims.json'

def read_ledger(path:str|Path=LEDGER)->dict[int,dict[str,Any]]: # number of a claim -> its row
    "The tested claims. `ValueError` where there is no ledger, or a verdict does not follow from its numbers."
    try: rows = json.loads(Path(path).read_text(encoding='utf-8'))
    except FileNotFoundError:
        raise ValueError(f'{path}: there is no ledger; it lies in results/ of a clone') from None
    except ValueError as e:
        raise ValueError(f'{path}: not readable as JSON ({e}); take the one of the clone') from e
    for row in rows:
        claim = CLAIMS[row['number']]
        if (row['chain'], row['held']) != (claim.chain, holds(claim, row['numbers'])):
            raise ValueError(f"{path}: claim {claim.number} says {row['held']}, and its numbers do not; "
                'run the script again that wrote it')
    return {row['number']: row for row in rows}

def ledger_rows(
    path:str|Path=LEDGER,
    numbers:Iterable[int]=tuple(CLAIMS), # of the claims to show
)->list[dict[str,str]]: # '#', 'source', 'claim', 'numbers', 'here', 'why'
    "The ledger as lines of a table: every claim, also what was not tested yet."
    ledger, rows = read_ledger(path), []
    for claim in (CLAIMS[n] for n in numbers):
        line = {'#': str(claim.number), 'source': f'{claim.paper}, {claim.where}',
            'claim': f'{claim.what}: {claim.chain}', 'numbers': '', 'here': 'untested',
            'why': UNTESTED.get(claim.number, '')}
        if row := ledger.get(claim.number):
            means = ', '.join(f'{k} {statistics.mean(v):.3g}' for k,v in row['numbers'].items())
            line |= {'numbers': f"{means} ({len(row['seeds'])} seeds)", 'why': row['why'],
                'here': {True: 'holds', False: 'does not hold', None: 'undecided'}[row['held']]}
        rows.append(line)
    return rows

def ledger_markdown(path:str|Path=LEDGER, numbers:Iterable[int]=tuple(CLAIMS))->str:
    "The ledger as a Markdown table."
    rows = ledger_rows(path, numbers)
    def line(words): return '| ' + ' | '.join(w.replace('|', '\\|') for w in words) + ' |'
    return '\n'.join([line(rows[0]), '|---'*len(rows[0]) + '|', *(line(r.values()) for r in rows)])

def ledger_text(path:str|Path=LEDGER, numbers:Iterable[int]=tuple(CLAIMS))->str:
    "The ledger for a terminal: a line for each claim, and below it its numbers and why."
    lines = []
    for r in ledger_rows(path, numbers):
        lines.append(f"{r['#']:>2}  {r['here']:<13} {r['source']:<27} {r['claim']}")
        lines += [f'    {text}' for text in (r['numbers'], r['why']) if text]
    return '\n'.join(lines)

def ledger_count(path:str|Path=LEDGER)->str:
    "How many claims hold, do not, are undecided and were not tested, in a sentence."
    held = [row['held'] for row in read_ledger(path).values()]
    return (f'Of {len(CLAIMS)} claims {len(held)} were tested: {held.count(True)} hold, '
        f'{held.count(False)} do not, {held.count(None)} are undecided.')
