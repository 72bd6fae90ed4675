"Every number of the papers' tables, of the released READMEs and of users' reports, as data with its source."

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

@dataclass(frozen=True)
class Published:
    "One number as it is printed, and everything that is said about it."
    paper:str # whose table it is in, or whose code was run
    table:str # 'table 6', 'text', 'README', 'issue #54'
    method:str # name of the row as printed
    task:str # 'retrieval', 'linear', 'finetune', 'scratch' or 'mining'
    test:str # dataset measured on
    metric:str # 'r1', 'r5', ..., 'top1', 'pmr', 'cmr', 'classes'
    value:float # as printed
    work:str='' # the method under one name over all papers
    kind:str='quoted' # 'own', 'quoted', 'release' or 'user'
    setting:str='' # what else tells the row from others of its table
    pretrain:str='' # dataset pretrained on; none: not said
    backbone:str=''
    frames:int|None=None # of a clip
    size:int|None=None # side of a clip, pixels
    view:str='' # 'rgb', 'flow', 'residual' or 'rgb+flow'; none: not said
    split:int|None=None # of the test dataset; none: not said
    protocol:str='' # where the paper or its code says how it was measured
    ablation:bool=False # from a table that varies settings
    unit:str='%'
    note:str=''

    @property
    def source(self)->str: return f'{self.paper}, {"released " if self.table=="README" else ""}{self.table}'

    def __str__(self)->str:
        return (f'{self.value:g} {self.unit} ({self.source}: '
            f'{self.method}{", " + self.setting if self.setting else ""})')

U,H,K,S = 'UCF101','HMDB51','Kinetics-400','Something-Something V2'
WORKS = {'ClipOrder': 'VCOP', 'Pace': 'PacePred', 'MemoryDPC': 'MemDPC', 'MemDPC-RGB': 'MemDPC',
    'MemDPC-Flow': 'MemDPC', 'COP_f': 'CORP', 'TT': 'RTT',
         'CoCLR-RGB': 'CoCLR', 'CoCLR-Flow': 'CoCLR', 'CoCLR-RGB(+CPR)': 'CPR', 'CoCLR-Flow(+CPR)': 'CPR',
         'CoCLR(+CPR)': 'CPR', 'IIC(+CPR)': 'IIC+CPR',
         'MoQuad†': 'MoQuad', 'MCN†': 'MCN'} # printed name -> one name; others are their own

def _at(test:str, task:str, *metrics:str)->list[tuple[str,str,str]]: # columns of a table
    return [(test, task, m) for m in metrics]

def _lay(paper:str, table:str, leading:str, columns:list[tuple[str,str,str]], lines:Sequence[tuple],
    protocols:dict[str,str]|None=None, **same:Any)->list[Published]:
    "The numbers of a table: fields that lead a line, (test, task, metric) of each column, lines."
    rows,names = [],leading.split()
    for line in lines:
        if len(line) != len(names) + len(columns):
            raise ValueError(f'{paper}, {table}: {line[0]!r} has {len(line)} cells, the heading has '
                f'{len(names) + len(columns)}')
        given = {**same, **dict(zip(names, line))}
        for (test,task,metric),value in zip(columns, line[len(names):]):
            if value is None: continue
            more = ({'work': WORKS.get(given['method'], given['method']),
                'protocol': (protocols or {}).get(task, '')} | given)
            rows.append(Published(paper=paper, table=table, task=task, test=test, metric=metric,
                value=float(value), **more))
    return rows

def markdown(
    rows:Iterable[Published], # in the order to show them
)->str: # a Markdown table, a line per row of the printed table
    "Published numbers as a table; what all its lines share stands above it. ValueError where there are none."
    rows = list(rows)
    def cells(r):
        return {'source': r.source, 'method': r.method, 'setting': r.setting, 'pretrained': r.pretrain,
            'backbone': r.backbone, 'view': r.view,
                          'input': 'x'.join(str(n) for n in (r.frames, r.size) if n)}
    lines: dict[tuple,dict[str,str]] = {}
    for r in rows:
        lines.setdefault(tuple(cells(r).values()), {})[f'{r.test} {r.task} {r.metric}'] = f'{r.value:g}'
    if not rows: raise ValueError('there are no published numbers to put in a table')
    columns = list(dict.fromkeys(c for values in lines.values() for c in values))
    filled = [(i, h) for i,h in enumerate(cells(rows[0])) if any(line[i] for line in lines)]
    # said once, above the table
    alike = [(i, h) for i,h in filled if i > 1 and len(lines) > 1 and len({line[i] for line in lines})==1]
    where = [(i, h) for i,h in filled if (i, h) not in alike]
    table = [[h for _,h in where] + columns, [':---']*len(where) + ['---:']*len(columns)]
    table += [[line[i] or '–' for i,_ in where] + [values.get(c, '–') for c in columns]
        for line,values in lines.items()]
    above = 'All: ' + ', '.join(f'{h} {next(iter(lines))[i]}' for i,h in alike) + '\n\n' if alike else ''
    return above + '\n'.join('| ' + ' | '.join(line) + ' |' for line in table)

_S3D: dict[str,Any] = {'backbone': 'S3D', 'frames': 32, 'size': 128, 'split': 1}
# C eval/main_classifier.py
_BY = {'retrieval': 'coclr_official', 'linear': 'coclr_linear', 'finetune': 'coclr_finetune',
    'scratch': 'coclr_scratch'}
COCLR = [
    *_lay('CoCLR', 'main paper', 'method pretrain view', _at(U, 'retrieval', 'r1'),
        [('CoCLR-RGB', U, 'rgb', 53.3), ('CoCLR-Flow', U, 'flow', 51.9)], _BY, kind='own', **_S3D),
    *_lay('CoCLR', 'table 1', 'method work pretrain view setting', _at(U, 'linear', 'top1'),
        [('CoCLR-RGB', 'CoCLR', U, 'rgb', '', 70.2), ('InfoNCE-RGB', 'InfoNCE', U, 'rgb', '500 epochs', 46.8),
            ('InfoNCE-RGB', 'InfoNCE', U, 'rgb', '800 epochs, first version', 52.3)],
        _BY, kind='own', **_S3D),
    *_lay('CoCLR', 'table 2', 'method pretrain view', _at(U, 'linear', 'top1'),
        [('CoCLR-RGB', K, 'rgb', 74.5)], _BY, kind='own', **_S3D),
    *_lay('CoCLR', 'README', 'method work pretrain view', _at(U, 'retrieval', 'r1')
        + _at(U, 'finetune', 'top1'), [
        ('UCF101-RGB-InfoNCE', 'InfoNCE', U, 'rgb', 33.1, None),
        ('UCF101-Flow-InfoNCE', 'InfoNCE', U, 'flow', 45.2, None),
        ('UCF101-RGB-CoCLR', 'CoCLR', U, 'rgb', 51.8, None),
        ('UCF101-Flow-CoCLR', 'CoCLR', U, 'flow', 48.4, None),
        ('K400-RGB-CoCLR', 'CoCLR', K, 'rgb', 45.6, 87.89),
        ('K400-Flow-CoCLR', 'CoCLR', K, 'flow', 44.4, 85.27),
        ('Two-stream', 'CoCLR', K, 'rgb+flow', None, 90.61)], _BY, kind='release', note='weights that can be '
        'downloaded; the two streams are averaged as probabilities', **_S3D),
    *_lay('CoCLR', 'issue #10', 'method work pretrain view', _at(U, 'retrieval', 'r1', 'r5', 'r10', 'r20',
        'r50'),
        [('UCF101-RGB-InfoNCE', 'InfoNCE', U, 'rgb', 36.11, 52.31, 61.72, 71, 82.05)], _BY, kind='user',
        note='the released file, 33.1 in the README', **_S3D),
    *_lay('CoCLR', 'issue #19', 'method work pretrain view', _at(U, 'linear', 'top1'),
        [('UCF101-RGB-CoCLR', 'CoCLR', U, 'rgb', 67.9)], _BY, kind='user', note='70.2 in the paper', **_S3D),
    *_lay('CoCLR', 'issue #54', 'method work pretrain view', _at(U, 'linear', 'top1'),
        [('K400-RGB-CoCLR', 'CoCLR', K, 'rgb', 66.2)], _BY, kind='user', note='74.5 in the paper', **_S3D),
    *_lay('CoCLR', 'issue #30', 'method view setting', _at(U, 'scratch', 'top1'),
        [('scratch', 'rgb', 'validation', 46.1), ('scratch', 'rgb', 'test', 3.41)], _BY, kind='user',
        note='trained and tested with two commands that do not fit each other', **_S3D),
]

_RK = ('r1', 'r5', 'r10', 'r20', 'r50')
_IN = {'backbone': 'R3D', 'frames': 16, 'size': 112}

IIC_README = [
    *_lay('IIC', 'README', 'method setting work view', _at(U, 'retrieval', *_RK), [
        ('Ours', 'repeat + res', 'IIC', 'rgb+residual', 36.5, 54.1, 62.9, 72.4, 83.4),
        ('Ours', 'repeat + u', 'IIC', 'rgb+flow', 41.8, 60.4, 69.5, 78.4, 87.7),
        ('Ours', 'shuffle + res', 'IIC', 'rgb+residual', 34.6, 53.0, 62.3, 71.7, 82.4),
        ('Ours', 'shuffle + v', 'IIC', 'rgb+flow', 42.4, 60.9, 69.2, 77.1, 86.5)],
        {'retrieval': 'iic_official'}, kind='release', pretrain=U, split=1, **_IN),
    *_lay('IIC', 'README', 'method setting work view', _at(U, 'retrieval', 'r1'),
        [('released weights', 'res', 'IIC', 'residual', 33.4), ('released weights', 'rgb', 'IIC', 'rgb',
        34.8),
        ('released weights', 'merge', 'IIC', 'rgb+residual', 36.5)], {'retrieval': 'iic_official'},
        kind='release', pretrain=U, split=1, note='repeat + res', **_IN),
    *_lay('IIC', 'README', 'method', _at(U, 'retrieval', *_RK), [
        ('Jigsaw', 19.7, 28.5, 33.5, 40.0, 49.4), ('OPN', 19.9, 28.7, 34.0, 40.6, 51.6),
        ('VCOP', 14.1, 30.3, 40.4, 51.1, 66.5), ('VCP', 18.6, 33.6, 42.5, 53.5, 68.1),
        ('CMC', 26.4, 37.7, 45.1, 53.2, 66.3), ('RTT', 26.1, 48.5, 59.1, 69.6, 82.8),
        ('MemDPC', 20.2, 40.4, 52.4, 64.7, None)], split=1),
    *_lay('IIC', 'README', 'method', _at(U, 'retrieval', *_RK),
        [('R3D (random)', 9.9, 18.9, 26.0, 35.5, 51.9)], {'retrieval': 'iic_official'}, kind='release',
        work='random', split=1, **_IN),
    *_lay('IIC', 'README', 'method setting work', _at(U, 'finetune', 'top1') + _at(H, 'finetune', 'top1'),
        [('Ours', 'repeat + res', 'IIC', 72.8, 35.3), ('Ours', 'repeat + u', 'IIC', 72.7, 36.8),
        ('Ours', 'shuffle + res', 'IIC', 74.4, 38.3), ('Ours', 'shuffle + v', 'IIC', 67.0, 34.0)], {
        'finetune': 'iic_finetune'}, kind='release', pretrain=U, **_IN),
    *_lay('IIC', 'README', 'method', _at(U, 'finetune', 'top1') + _at(H, 'finetune', 'top1'),
        [('Jigsaw', 51.5, 22.5), ('O3N (res)', 60.3, 32.5), ('OPN', 56.3, 22.1), ('OPN (res)', 71.8, 36.7),
        ('CrossLearn', 58.7, 27.2), ('CMC (3 views)', 59.1, 26.7), ('ImageNet-inflated', 60.3, 30.7),
        ('3D ST-puzzle', 65.8, 33.7), ('VCOP', 64.9, 29.5), ('VCP', 66.0, 31.5)]),
    *_lay('IIC', 'README', 'method', _at(U, 'scratch', 'top1') + _at(H, 'scratch', 'top1'),
        [('R3D (random)', 54.5, 23.4)], {'scratch': 'iic_finetune'}, kind='release', work='scratch', **_IN),
    *_lay('IIC', 'issue #2', 'method work setting kind', _at(U, 'finetune', 'top1'),
        [('own pretraining', 'IIC', 'repeat + res', 'user', 68), ('released weights', 'IIC', 'repeat + res',
        'user', 68.5),
        ('two runs by the author', 'IIC', 'first', 'release', 67.4),
        ('two runs by the author', 'IIC', 'second', 'release', 69.8),
        ('older code', 'IIC', 'residual not rescaled', 'release', 71.8)], {'finetune': 'iic_finetune'},
        pretrain=U, **_IN),
]

_ABL: dict[str,Any] = {'pretrain': U, 'ablation': True, **_S3D}
_PF = _at(U, 'linear', 'top1') + _at(U, 'finetune', 'top1')
_BYC = {**_BY, 'finetune': 'cpr_finetune'} # appendix A.2; the ablations take 100 epochs instead of 500
CPR_ABLATIONS = [
    *_lay('CPR', 'table 1', 'method work setting kind', _at(U, 'retrieval', 'r1', 'r5', 'r10') + _PF, [
        ('s = 1', 'CoCLR', '100 epochs', 'quoted', 45.1, 64.0, 71.9, 60.0, 69.5),
        ('s = 3', 'CPR', '', 'own', 46.5, 64.5, 72.0, 60.0, 69.6),
        ('s = 5', 'CPR', '', 'own', 47.5, 65.1, 73.3, 60.2, 70.6),
        ('s = 7', 'CPR', '100 epochs', 'own', 47.8, 66.2, 74.6, 60.4, 71.3)], _BYC, **_ABL),
    *_lay('CPR', 'table 2', 'method work setting', _at(U, 'retrieval', 'r1', 'r5', 'r10') + _PF, [
        ('r = 0.8(s=3)', 'CPR', '', 46.1, 63.9, 72.4, 60.0, 69.8),
        ('r = 0.5(s=3)', 'CPR', '', 46.5, 64.5, 72.0, 60.0, 69.6),
        ('r = 0.8(s=7)', 'CPR', '', 46.2, 63.6, 71.7, 59.6, 69.9),
        ('r = 0.5(s=7)', 'CPR', '100 epochs', 47.8, 66.2, 74.6, 60.4, 71.3)], _BYC, kind='own', **_ABL),
    *_lay('CPR', 'table 3', 'method setting', _at(U, 'retrieval', 'r1', 'r5', 'r10', 'r20'), [
        ('Baseline-Top-5', 'top 5 throughout', 36.2, 53.5, 63.6, 72.7),
        ('Prog-Top-1', 'cycle 1', 39.4, 57.5, 67.6, 77.2), ('Prog-Top-2', 'cycle 2', 42.5, 60.5, 69.0, 77.5),
        ('Prog-Top-3', 'cycle 3', 44.1, 62.3, 70.2, 77.9), ('Prog-Top-4', 'cycle 4', 45.3, 63.2, 70.4, 78.2),
        ('Prog-Top-5', '', 46.2, 63.6, 71.4, 79.2)],
        work='IIC+CPR', kind='own', pretrain=U, split=1, ablation=True),
    *_lay('CPR', 'table 4', 'method work setting kind', _at(U, 'mining', 'pmr') + _at(U, 'retrieval', 'r1')
        + _at(U, 'finetune', 'top1'), [
        ('s = 1 (CoCLR)', 'CoCLR', '100 epochs', 'quoted', 35.1, 45.1, 69.5),
        ('s = 3, r = 0.5', 'CPR', '', 'own', 35.8, 46.5, 69.6),
        ('s = 5, r = 0.5', 'CPR', '', 'own', 37.4, 47.5, 70.6),
        ('s = 7, r = 0.5', 'CPR', '100 epochs', 'own', 38.9, 47.8, 71.3)],
        _BYC, note='PMR: mean of the last epoch; the text calls R@1 that of mining, its values are those of '
        'retrieval in table 1', **_ABL),
    *_lay('CPR', 'table 5', 'method setting kind', _at(U, 'retrieval', 'r1', 'r5', 'r10')
        + _at(U, 'finetune', 'top1'), [
        ('CoCLR', '100 epochs', 'quoted', 45.1, 64.1, 71.9, 69.5),
        ('CoCLR(+CPR)', '100 epochs', 'own', 47.8, 66.2, 74.6, 71.3),
        ('UberNCE', '', 'quoted', 70.3, 81.7, 86.8, 80.7)],
        _BYC, note='trained again by the authors of CPR', pretrain=U, **_S3D),
    *_lay('CPR', 'table 5', 'method kind', _at(U, 'retrieval', 'r1', 'r5', 'r10')
        + _at(U, 'finetune', 'top1'), [
        ('IIC', 'quoted', 34.8, 51.6, 60.8, 71.8), ('IIC(+CPR)', 'own', 46.2, 63.6, 71.4, 73.1)], pretrain=U,
        split=1),
]

CPR_TABLES = [
    *_lay('CPR', 'table 6', 'method backbone view', _at(U, 'retrieval', *_RK[:4])
        + _at(H, 'retrieval', *_RK[:4]), [
        ('VCOP', 'R(2+1)D', '', 14.1, 30.3, 40.4, 51.1, 7.6, 22.9, 34.4, 48.8),
        ('VCP', 'R3D-50', '', 18.6, 33.6, 42.5, 53.5, 7.6, 24.4, 36.3, 53.6),
        ('MemDPC-RGB', 'R-2D3D', 'rgb', 20.2, 40.4, 52.4, 64.7, 7.7, 25.7, 40.6, 57.7),
        ('MemDPC-Flow', 'R-2D3D', 'flow', 40.2, 63.2, 71.9, 78.6, 15.6, 37.6, 52.0, 65.3),
        ('IIC', 'R3D-18', '', 42.4, 60.9, 69.2, 77.1, 19.7, 42.9, 57.1, 70.6),
        ('PacePred', 'R3D-18', '', 23.8, 38.1, 46.4, 56.6, 9.6, 26.9, 41.1, 56.1),
        ('CoCLR-RGB', 'S3D', 'rgb', 53.3, 69.4, 76.6, 82.0, 23.2, 43.2, 53.5, 65.5),
        ('CoCLR-Flow', 'S3D', 'flow', 51.9, 68.5, 75.0, 80.8, 23.9, 47.3, 58.3, 69.3),
        ('DSM', 'I3D', '', 17.4, 35.2, 45.3, 57.8, 7.6, 23.3, 36.5, 52.5),
        ('STS', 'R3D-18', '', 38.3, 59.9, 68.9, 77.2, 18.0, 37.2, 50.7, 64.8),
        ('CMD', 'C3D', '', 41.7, 57.4, 66.9, 76.1, 16.8, 37.2, 50.0, 64.3),
        ('VCLR', 'R2D-50', '', 46.8, 61.8, 70.4, 79.0, 17.6, 38.6, 51.1, 67.6),
        ('MFO', 'R3D-18', '', 39.6, 57.6, 69.2, 78.0, 18.8, 39.2, 51.0, 63.7),
        ('MCN', 'R3D-18', '', 53.8, 70.2, 78.3, 83.4, 24.1, 46.8, 59.7, 74.2)], pretrain=U),
    *_lay('CPR', 'table 6', 'method view', _at(U, 'retrieval', *_RK[:4]) + _at(H, 'retrieval', *_RK[:4]), [
        ('CoCLR-RGB(+CPR)', 'rgb', 50.4, 66.1, 73.0, 80.4, 18.2, 40.1, 52.5, 66.7),
        ('CoCLR-Flow(+CPR)', 'flow', 56.7, 75.5, 82.2, 88.2, 24.4, 48.5, 62.4, 74.3)], _BYC, kind='own',
        pretrain=U, **_S3D),
    *_lay('CPR', 'table 7', 'method frames size backbone view', _at(U, 'finetune', 'top1')
        + _at(H, 'finetune', 'top1'), [
        ('VCOP', 16, 112, 'R(2+1)D-26', '', 72.4, 30.9), ('VCP', 16, 112, 'C3D', '', 68.5, 32.5),
        ('IIC', 16, 112, 'R3D-18', '', 74.4, 38.3),
        ('PacePred', 16, 112, 'R(2+1)D', '', 75.9, 35.9), ('PRP', 16, 112, 'C3D', '', 69.1, 34.5),
        ('TT', 16, 112, 'R3D-18', '', 77.3, 47.5),
        ('CoCLR-RGB', 32, 128, 'S3D', 'rgb', 81.4, 52.1), ('DSM', 16, 112, 'C3D', '', 70.3, 40.5),
        ('STS', 16, 112, 'R3D-18', '', 77.8, 40.7), ('CMD', 16, 112, 'R3D-26', '', 76.6, 47.2),
        ('MFO', 32, 128, 'S3D', '', 74.3, 37.2), ('Vi2CLR', 32, 128, 'S3D', '', 82.8, 52.9),
        ('MCN', 32, 128, 'S3D', '', 82.9, 53.8)], pretrain=U),
    *_lay('CPR', 'table 7', 'method view', _at(U, 'finetune', 'top1') + _at(H, 'finetune', 'top1'),
        [('CoCLR-Flow(+CPR)', 'flow', 83.8, 54.8)], _BYC, kind='own', pretrain=U, **_S3D),
]

_MINED: dict[str,Any] = {'pretrain': U, 'note': 'training split 1; a class counts its 18 recordings, '
    'not its videos', **_S3D}
CPR_TEXT = [
    *_lay('CPR', 'text', 'method work setting kind', _at(U, 'mining', 'pmr'),
        [('CPR', 'CPR', 'first of 100 epochs', 'own', 34.0), ('CPR', 'CPR', 'last of 100 epochs', 'own',
        40.3),
        ('baseline CoCLR', 'CoCLR', 'lowest of 100 epochs', 'quoted', 35.2),
        ('baseline CoCLR', 'CoCLR', 'highest of 100 epochs', 'quoted', 37.4)], **_MINED),
    *_lay('CPR', 'text', 'method work setting kind', _at(U, 'mining', 'cmr'),
        [('CPR', 'CPR', 'median over classes', 'own', 83.3),
        ('baseline CoCLR', 'CoCLR', 'median over classes', 'quoted', 77.8),
        ('CPR', 'CPR', 'Diving', 'own', 100), ('CPR', 'CPR', 'PommelHorse', 'own', 100),
        ('CPR', 'CPR', 'UnevenBars', 'own', 100),
        ('CPR', 'CPR', 'Lunges', 'own', 27.8), ('CPR', 'CPR', 'Haircut', 'own', 33.3),
        ('CPR', 'CPR', 'HandstandWalking', 'own', 33.3)], **_MINED),
    *_lay('CPR', 'text', 'method work setting kind', _at(U, 'mining', 'classes'),
        [('CPR', 'CPR', 'CMR above that of the other', 'own', 48),
        ('baseline CoCLR', 'CoCLR', 'CMR above that of the other', 'quoted', 20),
        ('CPR', 'CPR', 'CMR of 100 %', 'own', 8), ('baseline CoCLR', 'CoCLR', 'CMR of 100 %', 'quoted', 6)],
        unit='of 101 classes', **_MINED),
]
CPR = CPR_ABLATIONS + CPR_TABLES + CPR_TEXT

_MQ = {'retrieval': 'moquad', 'linear': 'moquad_linear', 'finetune': 'moquad_finetune'}
_BOTH = _at(U, 'finetune', 'top1') + _at(H, 'finetune', 'top1')
_224: dict[str,Any] = {'kind': 'own', 'frames': 16, 'size': 224, 'view': 'rgb'}

MOQUAD_TABLES = [
    *_lay('MoQuad', 'table 1', 'method pretrain backbone frames size', _BOTH, [
        ('CoCLR', U, 'S3D', 32, 128, 81.4, 52.1), ('BE', U, 'R3D-34', 16, 224, 83.4, 53.7),
        ('Pace', K, 'R(2+1)D', 16, 112, 77.1, 36.6), ('MemoryDPC', K, 'R3D-34', 40, 224, 86.1, 54.5),
        ('BE', K, 'R3D-34', 16, 224, 87.1, 56.2), ('CMD', K, 'R3D-26', 16, 112, 83.7, 55.2),
        ('DPC', K, 'R3D-18', 40, 224, 68.2, 34.5), ('VideoMoCo', K, 'R3D-18', 32, 112, 74.1, 43.1),
        ('RSPNet', K, 'R3D-18', 16, 112, 74.3, 41.8), ('MFO', K, 'R3D-18', 16, 112, 79.1, 47.6),
        ('ASCNet', K, 'R3D-18', 16, 112, 80.5, 52.3), ('MFO', K, 'S3D', 16, 112, 76.5, 42.3),
        ('CoCLR', K, 'S3D', 32, 128, 87.9, 54.6), ('SpeedNet', K, 'S3D-G', 64, 224, 81.1, 48.8),
        ('RSPNet', K, 'S3D-G', 64, 224, 89.9, 59.6), ('TEC', K, 'S3D-G', 32, 128, 86.9, 63.5),
        ('ASCNet', K, 'S3D-G', 64, 224, 90.8, 60.5)]),
    *_lay('MoQuad', 'table 1', 'method setting pretrain backbone frames size', _BOTH,
        [('CVRL', '800 epochs', K, 'R3D-50', 16, 224, 92.9, 67.9)]),
    *_lay('MoQuad', 'table 1', 'method setting pretrain backbone', _BOTH, [
        ('MoQuad', '', U, 'R3D-18', 80.9, 51.0), ('MoQuad†', '', U, 'R3D-18', 82.7, 53.0),
        ('MoQuad†', '', U, 'S3D-G', 87.4, 57.3),
        ('MoQuad', '', K, 'R3D-18', 85.6, 56.2), ('MoQuad†', '', K, 'R3D-18', 87.3, 57.7),
        ('MoQuad', '', K, 'S3D-G', 91.9, 64.7), ('MoQuad†', '', K, 'S3D-G', 93.0, 65.9),
        ('MoQuad', '', K, 'R3D-50', 93.0, 66.9), ('MoQuad†', '', K, 'R3D-50', 93.7, 68.0),
        ('MoQuad†', '800 epochs', K, 'R3D-50', 94.7, 71.5)], _MQ, **_224),
    *_lay('MoQuad', 'table 2', 'method', _at(K, 'linear', 'top1'), [('CVRL', 62.9), ('COP_f', 63.4)],
        pretrain=K, backbone='R3D-50', frames=16, size=224, note='batch 512, 200 epochs'),
    *_lay('MoQuad', 'table 2', 'method', _at(K, 'linear', 'top1'), [('MoQuad', 64.4)], _MQ, pretrain=K,
        backbone='R3D-50', **_224),
    *_lay('MoQuad', 'table 2', 'method', _at(S, 'linear', 'top1'), [('CVRL', 31.5), ('COP_f', 41.1)],
        pretrain=S, backbone='R3D-50', frames=16, size=224, note='CVRL: made again by the authors of MoQuad'),
    *_lay('MoQuad', 'table 2', 'method', _at(S, 'linear', 'top1'), [('MoQuad', 44.0)], _MQ, pretrain=S,
        backbone='R3D-50', **_224),
    *_lay('MoQuad', 'table 3', 'method backbone frames size', _at(U, 'retrieval', 'r1', 'r5', 'r10'), [
        ('ClipOrder', 'R3D-18', 16, 112, 14.1, 30.3, 40.0), ('SpeedNet', 'S3D-G', 64, 224, 13.0, 28.1, 37.5),
        ('MemDPC', 'R(2+1)D', 40, 224, 20.2, 40.4, 52.4),
        ('VCP', 'R3D-18', 16, 112, 18.6, 33.6, 42.5), ('Pace', 'R(2+1)D', 16, 224, 25.6, 42.7, 51.3),
        ('CoCLR-RGB', 'S3D-G', 32, 128, 53.3, 69.4, 76.6),
        ('RSPNet', 'R3D-18', 16, 112, 41.1, 59.4, 68.4), ('ASCNet', 'R3D-18', 16, 112, 58.9, 76.3, 82.2)]),
    *_lay('MoQuad', 'table 3', 'method', _at(U, 'retrieval', 'r1', 'r5', 'r10'),
        [('MoQuad', 60.8, 77.4, 83.5)], _MQ, pretrain=U, backbone='R3D-18',
        note='the table does not say whether with the two extra strategies', **_224),
]

_FL = _BOTH + _at(U, 'linear', 'top1') + _at(H, 'linear', 'top1')
MOQUAD_ABLATIONS = [
    *_lay('MoQuad', 'table 4', 'method work setting pretrain', _FL, [
        ('– – –', 'SimCLR', '', U, 76.0, 44.3, 68.8, 33.6),
        ('✓ – –', 'MoQuad', 'AD-Pos', U, 78.2, 47.2, 70.0, 37.0),
        ('✓ ✓ –', 'MoQuad', 'AD-Pos, Intra-Neg', U, 79.6, 49.3, 71.5, 38.8),
        ('✓ ✓ ✓', 'MoQuad', '', U, 80.9, 51.0, 73.9, 40.3),
        ('– – –', 'SimCLR', '', K, 80.9, 50.2, 75.0, 44.3),
        ('✓ – –', 'MoQuad', 'AD-Pos', K, 82.1, 53.6, 76.2, 47.4),
        ('✓ ✓ –', 'MoQuad', 'AD-Pos, Intra-Neg', K, 84.5, 55.0, 77.3, 48.4),
        ('✓ ✓ ✓', 'MoQuad', '', K, 85.6, 56.2, 79.2, 50.1)], _MQ, backbone='R3D-18', ablation=True, **_224),
    *_lay('MoQuad', 'table 5', 'method setting', _at(H, 'linear', 'top1'), [('Speed', '', 40.3)], _MQ,
        work='MoQuad', pretrain=U, backbone='R3D-18', ablation=True, **_224),
    *_lay('MoQuad', 'table 6', 'method setting', _FL, [
        ('hard negatives', 'beta 0.01, alpha 1.5', 81.7, 52.3, 74.9, 41.4),
        ('hard negatives', 'beta 0.01, alpha 2.0', 81.5, 51.6, 74.8, 41.6),
        ('hard negatives', 'beta 0.01, alpha 3.0', 80.9, 50.8, 74.2, 41.0),
        ('hard negatives', 'beta 0.05, alpha 1.5', 79.3, 49.7, 72.7, 40.3),
        ('warm-up', '0%', None, None, 74.9, 41.4), ('warm-up', '10%', 82.8, 53.0, 75.6, 42.0),
        ('warm-up', '20%', 82.7, 53.0, 76.6, 42.9), ('warm-up', '40%', 81.0, 50.8, 74.2, 40.8),
        ('warm-up', '60%', 80.0, 49.7, 72.1, 39.9)], _MQ, work='MoQuad', pretrain=U, backbone='R3D-18',
        ablation=True, **_224),
    *[r for name,column in (('SimCLR', 0), ('MoQuad', 1)) for r in _lay('MoQuad', 'table 7', 'method setting',
        _at(S, 'linear', 'top1'), [(name, line[0], line[1 + column]) for line in [
        ('Tear something into two pieces', 75.2, 83.9), ('Approach something with camera', 60.1, 88.9),
        ('Show something behind something', 56.3, 57.4),
        ('Plug something into two pieces', 57.2, 56.3), ('Hold something', 27.4, 26.3),
        ('Move something and something closer', 41.4, 75.2),
        ('Move something and something away', 29.2, 74.5), ('Move something up', 34.3, 49.5),
        ('Move something down', 24.3, 68.6)]],
        _MQ, pretrain=S, ablation=True, note='accuracy of one category', **_224)],
]
MOQUAD = MOQUAD_TABLES + MOQUAD_ABLATIONS

_PV = {'retrieval': 'provico', 'linear': 'provico_linear', 'finetune': 'provico_finetune'}
_112: dict[str,Any] = {'kind': 'own', 'frames': 16, 'size': 112, 'view': 'rgb', 'split': 1}
_UH = f'{U}/{H}' # each pretrained on the dataset it is tested on
PROVICO_ACTION = [
    *_lay('ProViCo', 'table 1', 'method work backbone', _at(K, 'linear', 'top1'),
        [('Supervised', 'supervised', 'R3D-50', 74.7), ('Supervised', 'supervised', 'R3D-18', 68.9),
        ('Supervised', 'supervised', 'R(2+1)D', 71.7), ('SeCo', 'SeCo', 'ResNet-50', 61.9),
        ('CVRL', 'CVRL', 'R3D-50', 66.1), ('CVRL', 'CVRL', 'R3D-101', 67.6),
        ('ρBYOL', 'ρBYOL', 'R3D-50', 68.3), ('ρMoCo', 'ρMoCo', 'R(2+1)D', 57.2),
        ('CORP', 'CORP', 'R3D-50', 66.3)], pretrain=K),
    *_lay('ProViCo', 'table 1', 'method backbone', _at(K, 'linear', 'top1'),
        [('ProViCo', 'R3D-18', 62.8), ('ProViCo', 'R(2+1)D', 65.7)], _PV, pretrain=K,
        **{**_112, 'split': None}),
    *_lay('ProViCo', 'table 2', 'method backbone size pretrain', _FL[2:],
        [('MFO', 'R3D-18', 112, K, 63.2, 33.4), ('CATE', 'R3D-50', 224, K, 84.3, 53.6),
        ('CORP', 'R3D-50', 224, K, 90.2, 58.7)]),
    *_lay('ProViCo', 'table 2', 'method backbone pretrain', _FL[2:], [('ProViCo', 'R3D-18', K, 82.9, 52.2),
        ('ProViCo', 'R(2+1)D', K, 84.1, 53.5)], _PV, **_112),
    *_lay('ProViCo', 'table 2', 'method backbone size pretrain', _BOTH, [
        ('DSM', 'I3D', 224, K, 74.8, 52.5), ('CVRL', 'R3D-50', 224, K, 92.2, 66.7),
        ('VideoMoCo', 'R(2+1)D', 112, K, 78.7, 49.2), ('MFO', 'R3D-18', 112, K, 79.1, 47.6),
        ('CATE', 'R3D-50', 128, K, 88.4, 61.9), ('MCN†', 'R3D-18', 128, K, 89.7, 59.3),
        ('TCLR', 'R(2+1)D', 112, K, 84.3, 54.2), ('TEC', 'R(2+1)D', 112, K, 87.1, 59.8),
        ('VCP', 'C3D', 112, U, 68.5, 32.5), ('PRP', 'R(2+1)D', 112, U, 72.1, 35.0),
        ('RTT', 'R(2+1)D', 112, U, 81.6, 46.4), ('DSM', 'C3D', 112, U, 70.3, 40.5),
        ('MFO', 'R3D-18', 112, U, 76.2, 41.1),
        ('MCN†', 'R3D-18', 128, _UH, 85.4, 54.8), ('CORP', 'R3D-50', 224, _UH, 93.5, 68.0),
        ('TCLR', 'R(2+1)D', 112, U, 82.8, 53.6), ('TEC', 'R(2+1)D', 112, U, 85.2, 56.9)]),
    *_lay('ProViCo', 'table 2', 'method backbone size pretrain', _BOTH,
        [('ProViCo', 'R3D-18', 112, K, 85.6, 58.4), ('ProViCo', 'R(2+1)D', 112, K, 87.2, 59.4),
        ('ProViCo', 'R3D-18', 112, U, 83.7, 57.1), ('ProViCo', 'R(2+1)D', 112, U, 86.1, 58.0),
        ('ProViCo', 'R3D-50', 224, U, 94.6, 68.2)], _PV, **_112),
]

_RR = _at(U, 'retrieval', *_RK[:4]) + _at(H, 'retrieval', *_RK[:4])
PROVICO_RETRIEVAL = [
    *_lay('ProViCo', 'table 3', 'method backbone pretrain', _RR, [
        ('SpeedNet', 'S3D-G', K, 13.0, 28.1, 37.5, 49.5, None, None, None, None),
        ('MFO', 'R3D-18', K, 41.5, 60.6, 71.2, 80.1, 20.7, 40.8, 55.2, 68.3),
        ('CATE', 'R3D-50', K, 54.9, 68.3, 75.1, 82.3, 33.0, 56.8, 69.4, 82.1),
        ('TEC', 'R3D-18', K, 66.9, 83.1, 88.8, 93.3, 36.4, 64.1, 74.1, 83.8),
        ('VCP', 'R3D-18', U, 18.6, 33.6, 42.5, 53.5, 7.6, 24.4, 36.3, 53.6),
        ('Pace', 'R3D-18', U, 23.8, 38.1, 46.4, 56.6, 9.6, 26.9, 41.1, 56.1),
        ('PRP', 'R3D-18', U, 22.8, 38.5, 46.7, 55.2, 8.2, 25.8, 38.5, 53.3),
        ('DSM', 'I3D', U, 17.4, 35.2, 45.3, 57.8, 7.6, 23.3, 36.5, 52.5),
        ('STS', 'R3D-18', U, 38.3, 59.9, 68.9, 77.2, 18.0, 37.2, 50.7, 64.8),
        ('MFO', 'R3D-18', U, 39.6, 57.6, 69.2, 78.0, 18.8, 39.2, 51.0, 63.7),
        ('MCN†', 'R3D-18', U, 53.8, 70.2, 78.3, 83.4, 24.1, 46.8, 59.7, 74.2),
        ('TCLR', 'R3D-18', U, 56.2, 72.2, 79.0, 85.3, 22.8, 45.4, 57.8, 73.1),
        ('TEC', 'R3D-18', U, 62.5, 78.4, 84.1, 88.8, 32.0, 60.8, 72.2, 81.7)]),
    *_lay('ProViCo', 'table 3', 'method backbone pretrain', _RR,
        [('ProViCo', 'R3D-18', K, 67.6, 81.4, 90.1, 94.7, 40.1, 60.6, 75.2, 85.2),
        ('ProViCo', 'R3D-18', U, 63.8, 75.1, 84.8, 89.2, 35.9, 55.2, 74.3, 81.8)], _PV, **_112),
]

_AP: dict[str,Any] = {'work': 'ProViCo', 'pretrain': U, 'ablation': True, **_112}
PROVICO_ABLATIONS = [
    *_lay('ProViCo', 'table 4', 'method setting', _at(U, 'finetune', 'top1'),
        [('beta', '1e-4', 83.7), ('beta', '1e-3', 83.4), ('beta', '1e-2', 81.6),
        ('K', '5', 81.2), ('K', '7', 83.1), ('K', '10', 83.7)], _PV, backbone='R3D-18', **_AP),
    *_lay('ProViCo', 'appendix table 1', 'method setting', _at(U, 'finetune', 'top1'),
        [('N', '1, B = 40', 78.3), ('N', '2, B = 40', 81.8), ('N', '3, B = 40', 82.2),
        ('N', '4, B = 40', 82.4),
        ('B', '24', 79.9), ('B', '48', 82.1), ('B', '72', 84.5), ('B', '96', 86.1)], _PV, backbone='R(2+1)D',
        **_AP),
    *_lay('ProViCo', 'appendix table 2', 'method setting', _at(U, 'finetune', 'top1')
        + _at(U, 'retrieval', *_RK[:4]), [('Mining', 'off', 84.2, 61.2, 75.5, 84.0, 88.7),
        ('Mining', '', 86.1, 64.7, 78.5, 87.9, 91.1)], _PV, backbone='R(2+1)D', **_AP),
    *_lay('ProViCo', 'appendix table 3', 'method setting', _at(U, 'retrieval', *_RK[:4]),
        [('Cosine Similarity', 'cosine', 63.1, 77.0, 86.3, 89.8),
        ('Match Probability', '', 64.7, 78.5, 87.9, 91.1)], _PV, backbone='R(2+1)D', **_AP),
]
PROVICO = PROVICO_ACTION + PROVICO_RETRIEVAL + PROVICO_ABLATIONS

USERS = [
    *_lay('SlowFast', 'issue #554', 'method', _at(U, 'finetune', 'top1'), [('ρMoCo', 69.4)], pretrain=K,
        kind='user', note='released ρ = 2 weights'),
    *_lay('SlowFast', 'issue #646', 'method setting kind', _at(U, 'finetune', 'top1'),
        [('ρBYOL', 'rerun', 'user', 91.7), ('ρBYOL', 'paper', 'own', 94.2)], pretrain=K),
    *_lay('VCLR', 'issue #11', 'method setting kind', _at(U, 'linear', 'top1'),
        [('VCLR', 'pretrained again', 'user', 74.0946), ('VCLR', 'released weights', 'user', 59.8731)],
        pretrain=U, split=1),
]
ROWS: tuple[Published,...] = (*COCLR, *IIC_README, *CPR, *MOQUAD, *PROVICO, *USERS)

DOUBTFUL = ( # (source, what it prints, why it is not among ROWS)
    ('MoQuad, table 5 left', '80.1 49.0 72.0 39.4', 'three operations, one line of numbers is legible: '
        'probably RAD (Intra), but it could be BE'),
    ('MoQuad, table 5 right', '77.4, 70.3, and HMDB51 linear 34.7, 36.4', 'Reverse and Shuffle share the '
        'legible cells; only Speed, 40.3, is confirmed by table 4'),
    ('MoQuad, table 6 left, first line', 'beta = 0', 'garbled; the caption says that it repeats 80.9 51.0 '
        '73.9 40.3 of table 4'),
    ('MoQuad, table 6 right, 0 %', 'fine-tuning', 'garbled; the caption says that it repeats 81.7 52.3'),
    ('MoQuad, table 3', 'pretraining of the quoted methods', 'not said; elsewhere SpeedNet is pretrained on '
        'Kinetics-400'),
    ('CPR, table 4, R@1', '45.1 46.5 47.5 47.8', 'retrieval as in table 1, or mining as the text says; '
        'kept as retrieval, with a note'),
    ('CPR, table 1, 2, 4, 5', 'the view', 'not said; kept without a view'),
    ('CoCLR, issue #30', 'table 1, from scratch: 77 %', 'rounded in a headline, and the protocol is '
        'in dispute'),
    ('ProViCo, figures 4 and 6', 'uncertainty', 'curves without numbers'),
    ('CPR, figures 3, 4 and 6', 'PMR by epoch, CMR by class', 'curves and bars without numbers, apart from '
        'those in the text'),
)

def lookup(
    rows:Iterable[Published]|None=None, # None: ROWS
    **wanted:Any, # field -> value, or a function of the value that says yes or no
)->list[Published]:
    "The published numbers with these fields; ValueError for a field or value that no row has."
    found = list(ROWS if rows is None else rows)
    known = [f.name for f in fields(Published)] + ['source']
    for name,value in wanted.items():
        if name not in known:
            raise ValueError(f'a published number has no field {name!r}; there are: {", ".join(known)}')
        if isinstance(value, Callable): # type: ignore[arg-type]
            found = [r for r in found if value(getattr(r, name))]
            continue
        seen = {getattr(r, name) for r in ROWS}
        if value not in seen:
            raise ValueError(f'no published number has {name}={value!r}; there are: '
                f'{", ".join(sorted(repr(s) for s in seen))}')
        found = [r for r in found if getattr(r, name)==value]
    return found

def _fit(a:Published, b:Published, *names:str)->bool: # equal, or one does not say
    return all(x==y or x in ('', None) or y in ('', None) for x,y in ((getattr(a, n), getattr(b, n))
        for n in names))

def disagree(
    rows:Iterable[Published]|None=None, # None: ROWS
)->list[tuple[str,Published,Published]]: # ('value' or 'backbone', one, other)
    "Pairs that give one thing two numbers, or two backbones one number; users' reports are left out."
    groups: dict[tuple,list[Published]] = {}
    for r in ROWS if rows is None else rows:
        if r.kind != 'user' and r.work not in ('random', 'supervised'):
            groups.setdefault((r.work, r.task, r.test, r.metric), []).append(r)
    found = []
    for group in groups.values():
        for i,a in enumerate(group):
            for b in group[:i]:
                if (a.ablation or b.ablation) and not a.setting==b.setting!='':
                    continue # an ablation varies what it does not repeat
                level = abs(a.value - b.value) < .051 # 87.89 and 87.9 are one number
                if (not level and _fit(a, b, 'pretrain', 'backbone', 'view', 'frames', 'size', 'setting')
                    and a.method.endswith('†')==b.method.endswith('†')):
                    found.append(('value', b, a))
                if level and _fit(a, b, 'pretrain', 'view', 'setting') and not _fit(a, b, 'backbone'):
                    found.append(('backbone', b, a))
    return found

PUBLISHED_METHODS = {'infonce': 'InfoNCE', 'ubernce': 'UberNCE', 'coclr': 'CoCLR', 'cpr': 'CPR', 'iic': 'IIC',
    'simclr': 'SimCLR', 'moquad': 'MoQuad', 'provico': 'ProViCo'}
PUBLISHED_DATASETS = {'ucf101': U, 'hmdb51': H, 'k400': K, 'kinetics400': K, 'ssv2': S}
PUBLISHED_VIEWS = {'rgb': 'rgb', 'flow': 'flow', 'residual': 'residual', 'res': 'residual',
    'rgb+flow': 'rgb+flow', 'twostream': 'rgb+flow', 'rgb+residual': 'rgb+residual'}
PUBLISHED_BACKBONES = {'s3d': 'S3D', 's3dg': 'S3D-G', 'r3d18': 'R3D-18', 'r3d50': 'R3D-50',
    'r2plus1d18': 'R(2+1)D', 'r2plus1d': 'R(2+1)D', 'r21d18': 'R(2+1)D', 'r3d': 'R3D', 'c3d': 'C3D',
    # our names of networks that share one in the tables (page 11)
    'r3d18iic': 'R3D', 'r2plus1diic': 'R(2+1)D', 'r3d18slow': 'R3D-18', 'r3d50cvrl': 'R3D-50'}
TASKS = {'retrieval': 'retrieval', 'retrieve': 'retrieval', 'linear': 'linear', 'probe': 'linear',
    'linear_probe': 'linear', 'linear probe': 'linear', 'finetune': 'finetune',
         'fine-tune': 'finetune', 'finetuning': 'finetune', 'scratch': 'scratch', 'mining': 'mining'}

def parts(
    name:str, # of a recipe
)->dict[str,str]: # 'work', 'pretrain', 'view', 'backbone'; '' where the name does not say
    "What the name of a recipe says."
    words = re.split('[-_ ]', name.lower())
    def first(table): return next((table[w] for w in words if w in table), '')
    work = first(PUBLISHED_METHODS)
    if {'iic', 'cpr'} <= set(words): work = 'IIC+CPR'
    return {'work': work, 'pretrain': first(PUBLISHED_DATASETS), 'view': first(PUBLISHED_VIEWS),
        'backbone': first(PUBLISHED_BACKBONES)}

def match(
    name:str, # of a recipe, such as 'infonce-ucf101-rgb'
    task:str='retrieval', # 'retrieval', 'linear' (or 'probe'), 'finetune', 'scratch', 'mining'
    metric:str='r1',
    test:str='', # dataset measured on; none: the one pretrained on, for Kinetics-400 UCF101
    view:str='', # of the run, where the name does not say it
    backbone:str='', # likewise
)->list[Published]: # the nearest first; empty where nothing was published
    "What a run of this recipe stands against."
    if task not in TASKS: raise ValueError(f'task={task!r} is unknown; there are: {", ".join(TASKS)}')
    said = parts(name)
    view, backbone = (view or said['view'],
        PUBLISHED_BACKBONES.get(backbone.replace('_', '').replace('-', '').lower(), backbone)
        or said['backbone'])
    if not said['work'] or not said['pretrain']: return []
    test = test or (U if said['pretrain']==K else said['pretrain'])
    rows = [r for r in ROWS if (r.work, r.task, r.metric, r.test) == (said['work'], TASKS[task], metric, test)
        and said['pretrain'] in r.pretrain.split('/')
            and (r.view==view or not view or not r.view and '+' not in view)
            and (not backbone or r.backbone in (backbone, ''))]
    whole = [r for r in rows if not r.ablation] or [r for r in rows if not r.setting] or rows
    return sorted(whole, key=lambda r: (not r.view, ('own', 'quoted', 'release', 'user').index(r.kind),
        not r.method.endswith('†'), 'first version' in r.setting, bool(r.setting)))
