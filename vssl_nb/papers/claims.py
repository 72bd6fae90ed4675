"Which claims of the papers hold here, by a rule that was written down before anybody looked?"

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

@dataclass(frozen=True)
class Claim:
    "What a text claims, as an inequality between named numbers."
    number:int # in the ledger
    paper:str # 'CPR', ...
    where:str # table, figure or section
    what:str # is compared: 'R@1', 'PMR in the last epoch'
    chain:str # 'a < b <= c', several separated by '; '

    @property
    def links(self)->list[tuple[str,str,str]]: # (a, '<' or '<=', b)
        "The inequalities of neighbours."
        found: list[tuple[str,str,str]] = []
        for part in self.chain.split('; '):
            words = re.split(' (<=?) ', part)
            found += [(words[i], words[i+1], words[i+2]) for i in range(0, len(words)-2, 2)]
        return found

LEAST_SEEDS = 3 # fewer decide nothing

def holds(
    claim:Claim,
    numbers:Mapping[str,Sequence[float]], # name in the chain -> a number for each seed, all in one order
)->bool|None: # None: too few seeds
    "The verdict, from the numbers alone. ValueError where one is missing."
    for name in (n for a,_,b in claim.links for n in (a, b)):
        if name not in numbers:
            raise ValueError(f'claim {claim.number}: {claim.chain}, and there is no number for {name!r}')
    n = len(next(iter(numbers.values())))
    if any(len(x)!=n for x in numbers.values()):
        raise ValueError(f'claim {claim.number}: some numbers come from more seeds than others; '
            'give each a number for each seed')
    if n < LEAST_SEEDS: return None
    def link(a, sign, b):
        d = [y-x for x,y in zip(numbers[a], numbers[b])]
        error = statistics.stdev(d)/math.sqrt(n)
        return statistics.mean(d) > error if sign=='<' else statistics.mean(d) >= -error
    return all(link(*x) for x in claim.links)

def _numbered(first:int, paper:str, *rows:tuple[str,str,str])->list[Claim]: # (where, what, chain)
    return [Claim(first+i, paper, *row) for i,row in enumerate(rows)]

_STAGES = 's=1 < s=3 < s=5 < s=7'
CLAIMS = {c.number: c for c in [
    *_numbered(1, 'CoCLR',
        ('table 1', 'R@1', 'InfoNCE < UberNCE'),
        ('table 1', 'R@1', 'InfoNCE < CoCLR; halfway to UberNCE < CoCLR'),
        ('table 4', 'R@1', 'frames < both streams; motion < both streams')),
    *_numbered(4, 'CPR',
        ('table 1', 'R@1', _STAGES),
        ('table 2', 'R@1', 'r=0.8 <= r=0.5'),
        ('table 3', 'R@1 of IIC+CPR', 'fixed k < k grows by cycle'),
        ('table 4', 'PMR in the last epoch', _STAGES),
        ('figure 3', 'PMR over training',
            'CPR, first epochs < CPR, last epochs; rise of CoCLR < rise of CPR'),
        ('table 5', 'R@1', 'IIC < IIC+CPR'),
        ('figures 4, 6', 'median CMR in the last epoch', 'CoCLR < CPR')),
    *_numbered(11, 'MoQuad',
        ('table 4', 'linear probe', 'SimCLR < +AD-Pos < +Intra-Neg < +AD-Intra-Neg'),
        ('table 5', 'linear probe', 'BE < RAD intra < RAD inter'),
        ('table 5', 'linear probe', 'shuffle < speed; reverse < speed'),
        ('table 6', 'linear probe', 'no mining < alpha 1.5; alpha 3 < alpha 1.5; beta 0.05 < beta 0.01'),
        ('table 6', 'linear probe', '0 % < 20 %; 40 % < 20 %; 60 % < 20 %'),
        ('figure 4', 'rank of the intra-negatives', 'without warm-up < with warm-up'),
        ('table 7', 'gain over SimCLR by class', 'appearance classes < motion classes'),
        ('figure 5', 'share of the class activation on what moves', 'SimCLR < MoQuad')),
    *_numbered(19, 'ProViCo',
        ('table 4', 'R@1', 'beta 1e-3 < beta 1e-4; beta 1e-5 < beta 1e-4'),
        ('table 4', 'R@1', 'K=5 < K=10'),
        ('appendix, table 1', 'R@1', 'N=1 < N=2; small batch < large batch'),
        ('appendix, table 2', 'R@1', 'without mining < with mining'),
        ('appendix, table 3', 'R@1', 'cosine < match probability'),
        ('figure 4', 'accuracy by uncertainty', 'most uncertain < most certain'),
        ('appendix, figure 6', 'uncertainty', 'one video < two videos mixed'),
        ('appendix, figure 6', 'uncertainty', 'whole < masked'),
        ('appendix, figure 1', 'precision of early pairs', 'Euclidean < Bhattacharyya'))]}

LEDGER = Path(__file__).parents[2]/'results'/'claims.json'

def read_ledger(
    path=LEDGER,
)->dict[int,dict[str,Any]]: # number of a claim -> its row
    "What was tested so far; ValueError where there is no ledger, or it does not follow from its numbers."
    path = Path(path)
    try: rows = json.loads(path.read_text(encoding='utf-8'))
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

def keep_claim(
    number:int, # of CLAIMS
    numbers:Mapping[str,Sequence[float]], # name in the chain -> a number for each seed
    seeds:Sequence[int], # none of them used to choose settings
    how:str, # it was tested: script, data, budget
    why:str, # it does or does not hold, in a sentence
    measured:Mapping[str,Any], # machine, versions, date
    path=LEDGER,
)->dict[str,Any]: # the row
    "Write one row into the ledger, in the place of an older one. ValueError where it does not fit the claim."
    from ..training.checkpoints import write_whole # who reads needs no PyTorch
    claim, path = CLAIMS[number], Path(path)
    if any(len(x)!=len(seeds) for x in numbers.values()):
        raise ValueError(f'claim {number}: {len(seeds)} seeds, another count of numbers; give one for each')
    row = {'number': number, 'source': f'{claim.paper}, {claim.where}', 'what': claim.what,
        'chain': claim.chain, 'held': holds(claim, numbers), 'why': why, 'how': how, 'seeds': [*seeds],
        'numbers': {k: [*v] for k,v in numbers.items()}, 'measured': dict(measured)}
    rows = (read_ledger(path) if path.exists() else {}) | {number: row}
    text = json.dumps([rows[n] for n in sorted(rows)], indent=1, ensure_ascii=False) + '\n'
    write_whole(path, lambda f: f.write(text.encode()))
    return row

VERDICTS = {True: 'holds', False: 'does not hold', None: 'undecided'}
UNTESTED = {17: 'Every class of the toy needs motion, so there is no group of classes to compare with: it '
    'takes real videos (page 26 has the measure).'} # why

def ledger_rows(
    path=LEDGER,
    numbers:Iterable[int]=tuple(CLAIMS), # of the claims to show
)->list[dict[str,str]]: # '#', 'source', 'claim', 'here', 'numbers', 'why'
    "The ledger for people: every claim, also what was not tested yet."
    ledger, rows = read_ledger(path), []
    for n in numbers:
        claim, row = CLAIMS[n], ledger.get(n)
        told = {'#': str(n), 'source': f'{claim.paper}, {claim.where}',
            'claim': f'{claim.what}: {claim.chain}', 'numbers': '', 'here': 'untested',
            'why': UNTESTED.get(n, '')}
        if row:
            means = (f'{k} {statistics.mean(v):.3g}' for k,v in row['numbers'].items())
            told |= {'here': VERDICTS[row['held']], 'why': row['why'],
                'numbers': ', '.join(means) + f" ({len(row['seeds'])} seeds)"}
        rows.append(told)
    return rows

def ledger_markdown(
    path=LEDGER,
    numbers:Iterable[int]=tuple(CLAIMS), # of the claims to show
)->str:
    "The ledger as a Markdown table."
    rows = ledger_rows(path, numbers)
    def line(words): return '| ' + ' | '.join(w.replace('|', '\\|') for w in words) + ' |'
    return '\n'.join([line(rows[0]), '|---'*len(rows[0]) + '|', *(line(r.values()) for r in rows)])

def ledger_text(
    path=LEDGER,
    numbers:Iterable[int]=tuple(CLAIMS), # of the claims to show
)->str:
    "The ledger for a terminal: a line for each claim, and below it its numbers and why."
    lines = []
    for r in ledger_rows(path, numbers):
        lines.append(f"{r['#']:>2}  {r['here']:<13} {r['source']:<27} {r['claim']}")
        lines += [f'    {said}' for said in (r['numbers'], r['why']) if said]
    return '\n'.join(lines)

def ledger_count(path=LEDGER)->str:
    "How many claims hold, do not, are undecided and were not tested, in a sentence."
    held = [row['held'] for row in read_ledger(path).values()]
    return (f'Of {len(CLAIMS)} claims {len(held)} were tested: {held.count(True)} hold, '
        f'{held.count(False)} do not, {held.count(None)} are undecided.')
