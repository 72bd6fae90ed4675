"Released files, built here from the facts of b1 by classes of this test alone: read, written, read again."
import copy
import os
import pickle
import resource
import time
import zipfile
from argparse import Namespace
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vssl_nb.training.checkpoints import CheckpointError, load_released, save_released
from vssl_nb.nets.backbones import r3d18_iic

K, DIM = 32, 128
WIDTHS = {'3b': (64, 96, 128, 16, 32, 32), '3c': (128, 128, 192, 32, 96, 64),
    '4b': (192, 96, 208, 16, 48, 64), '4c': (160, 112, 224, 24, 64, 64), '4d': (128, 128, 256, 24, 64, 64),
    '4e': (112, 144, 288, 32, 64, 64), '4f': (256, 160, 320, 32, 128, 128),
    '5b': (256, 160, 320, 32, 128, 128), '5c': (384, 192, 384, 48, 128, 128)}


class Point(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv, self.bn = nn.Conv3d(a, b, 1, bias=False), nn.BatchNorm3d(b)

    def forward(self, x): return self.bn(self.conv(x)).relu()


class Twice(nn.Module):
    "Space, then time; both convolutions are registered before both norms."
    def __init__(self, a, b, k=3, s=1):
        super().__init__()
        p = k//2
        self.conv1 = nn.Conv3d(a, b, (1, k, k), (1, s, s), (0, p, p), bias=False)
        self.conv2 = nn.Conv3d(b, b, (k, 1, 1), (s, 1, 1), (p, 0, 0), bias=False)
        self.bn1, self.bn2 = nn.BatchNorm3d(b), nn.BatchNorm3d(b)

    def forward(self, x): return self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()


class Mixed(nn.Module):
    def __init__(self, i, w):
        super().__init__()
        self.branch0 = nn.Sequential(Point(i, w[0]))
        self.branch1 = nn.Sequential(Point(i, w[1]), Twice(w[1], w[2]))
        self.branch2 = nn.Sequential(Point(i, w[3]), Twice(w[3], w[4]))
        self.branch3 = nn.Sequential(nn.MaxPool3d(3, 1, 1), Point(i, w[5]))

    def forward(self, x): return torch.cat([getattr(self, f'branch{i}')(x) for i in range(4)], 1)


class Backbone(nn.Module):
    "Every layer under its own name and inside its block."
    def __init__(self):
        super().__init__()
        self.Conv_1a = Twice(3, 64, 7, 2)
        self.block1 = nn.Sequential(self.Conv_1a)
        self.MaxPool_2a = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        self.Conv_2b, self.Conv_2c = Point(64, 64), Twice(64, 192)
        self.block2, at = nn.Sequential(self.MaxPool_2a, self.Conv_2b, self.Conv_2c), 192
        first = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        pools = {3: first, 4: nn.MaxPool3d(3, 2, 1), 5: nn.MaxPool3d(2, 2)}
        for block, pool in pools.items():
            parts = [pool]
            setattr(self, f'MaxPool_{block}a', pool)
            for name, w in WIDTHS.items():
                if name[0]!=str(block): continue
                setattr(self, f'Mixed_{name}', Mixed(at, w))
                parts.append(getattr(self, f'Mixed_{name}'))
                at = w[0] + w[2] + w[4] + w[5]
            setattr(self, f'block{block}', nn.Sequential(*parts))

    def forward(self, x):
        for i in range(1, 6): x = getattr(self, f'block{i}')(x)
        return x


def encoder():
    return nn.Sequential(Backbone(), nn.AdaptiveAvgPool3d((1, 1, 1)), nn.Conv3d(1024, 1024, 1), nn.ReLU(),
        nn.Conv3d(1024, DIM, 1))


class Pretraining(nn.Module):
    "The names of InfoNCE, and what the others add."
    def __init__(self, method):
        super().__init__()
        self.encoder_q, self.encoder_k = encoder(), encoder()
        self.encoder_k.requires_grad_(False)
        self.register_buffer('queue', F.normalize(torch.randn(DIM, K), dim=0))
        self.register_buffer('queue_ptr', torch.tensor([8]))
        if method=='ubernce': self.register_buffer('queue_label', torch.arange(K) % 5)
        if method in ('coclr', 'cpr'):
            self.sampler = encoder().requires_grad_(False)
            self.register_buffer('queue_second', F.normalize(torch.randn(DIM, K), dim=0))
            self.register_buffer('queue_vname', torch.arange(K)//2)
            self.register_buffer('queue_label', torch.ones(K, dtype=torch.long))
        if method=='cpr': self.register_buffer('memory_index_record', torch.arange(K))


class Classifier(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.backbone = Backbone()
        self.final_fc = nn.Sequential(*[nn.Dropout(.9)]*dropout, nn.Linear(1024, 7))
        if not dropout: self.final_bn = nn.BatchNorm1d(1024)


KEYS = {'infonce': 1858, 'ubernce': 1859, 'coclr': 2789, 'cpr': 2790, 'classifier': 926}
CLIPS = torch.randn(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))


def model_of(method):
    with torch.random.fork_rng():
        torch.manual_seed(len(method))
        heads = {'classifier': True, 'probe': False}
        model = Classifier(heads[method]) if method in heads else Pretraining(method)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm3d)]
    for m in norms: m.momentum = 1 # running statistics are those of one batch
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, Backbone): m(CLIPS.roll(1))
    for m in norms: m.momentum = .1
    return model


def adam_of(model):
    "One group for each parameter, of which those that learn have a state."
    opt = torch.optim.Adam([{'params': p} for p in model.parameters()], lr=1e-3, weight_decay=1e-5)
    for i, p in enumerate(model.parameters()):
        p.grad = torch.full_like(p, 1e-3*(i % 7 + 1)) if p.requires_grad else None
    opt.step()
    return opt


def saved(path, method, optimizer=False, **how):
    model = model_of(method)
    opt = adam_of(model) if optimizer else None
    content = {'epoch': 182, 'state_dict': model.state_dict(), 'best_acc': np.float64(.5), 'iteration': 27000}
    torch.save(content | ({'optimizer': opt.state_dict()} if opt else {}), path, **how)
    return model.eval(), opt


def features(backbone): return F.adaptive_avg_pool3d(backbone(CLIPS), 1).flatten(1)


@pytest.fixture(scope='module', params=[*KEYS, 'probe'])
def file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp('released')/f'{request.param}-ucf101-rgb-128-s3d-ep182.tar'
    model, opt = saved(path, request.param, optimizer=request.param in ('infonce', 'coclr'))
    return request.param, path, model, opt


@torch.inference_mode()
def test_load_save_load(file, tmp_path):
    "Their features to 1e-6, the way back into their loader, ours twice the same, every key booked."
    method, path, model, opt = file
    state = model.state_dict()
    assert method=='probe' or len(state)==KEYS[method]
    r = load_released(path)
    assert (r.method, r.view, r.backbone) == (method.replace('probe', 'classifier'), 'rgb', 's3d')
    assert (r.epoch, r.iteration) == (182, 27000)
    assert r.best_acc==.5 and type(r.best_acc) is float and r.checked
    assert sorted(r.report.used + r.report.duplicated) == sorted(state) and not r.report.unused
    assert not r.report.problems()
    networks = [(r.encoder, getattr(model, 'backbone', None) or model.encoder_q[0])]
    if r.momentum: networks += [(r.momentum, model.encoder_k[0])]
    if r.sampler: networks += [(r.sampler, model.sampler[0])]
    assert len(networks) == (1 if 'classifier' in r.method else 2 if method in ('infonce', 'ubernce') else 3)
    for ours, theirs in networks:
        a, b = ours(CLIPS), features(theirs)
        assert a.std() > 1e-3 and (a - b).abs().max() < 1e-6*max(1, b.abs().max())
    if 'encoder' in r.heads:
        want = model.encoder_q(CLIPS).flatten(1)
        assert torch.allclose(r.heads['encoder'](r.encoder(CLIPS)), want, rtol=1e-5, atol=1e-5*want.std())
    else:
        x = features(model.backbone)
        want = model.final_fc(x) if method=='classifier' else model.final_fc(model.final_bn(F.normalize(x)))
        assert torch.allclose(r.heads['classifier'](r.encoder(CLIPS)), want, rtol=1e-5, atol=1e-5*want.std())

    again = save_released(r, tmp_path/'again.tar')
    back = torch.load(again, weights_only=True)
    assert [*back['state_dict']] == [*state] # in the order of their classes, too
    fresh = model_of(method)
    fresh.load_state_dict(back['state_dict'])
    for k, v in fresh.state_dict().items(): assert torch.equal(v, state[k]), k
    assert again.stat().st_size < 1.1*path.stat().st_size # both names share their numbers
    if opt:
        theirs = torch.optim.Adam([{'params': p} for p in fresh.parameters()], lr=.5)
        theirs.load_state_dict(back['optimizer'])
        assert len(theirs.param_groups)==len(opt.param_groups) and theirs.param_groups[3]['lr']==1e-3
        for p, q in zip(model.parameters(), fresh.parameters()):
            for k, v in opt.state[p].items(): assert torch.equal(v, theirs.state[q][k])
            assert theirs.state[q].keys()==opt.state[p].keys()
    s = load_released(again, view='rgb')
    assert torch.equal(s.encoder(CLIPS), r.encoder(CLIPS)) and s.report==r.report and str(s)==str(r)
    assert s.queues.keys()==r.queues.keys() and all(torch.equal(v, r.queues[k]) for k, v in s.queues.items())


@pytest.fixture(scope='module')
def infonce(tmp_path_factory):
    path = tmp_path_factory.mktemp('infonce')/'infonce.tar'
    model, _ = saved(path, 'infonce')
    return path, model.state_dict()


def rewritten(path, state, change, **how):
    state = OrderedDict(state)
    change(state)
    torch.save({'epoch': 1, 'state_dict': state}, path, **how)
    return path


def test_older_files(infonce, tmp_path):
    "Before zip, in DistributedDataParallel, on a GPU, with single names: all are read; the view is asked."
    _, state = infonce
    want = load_released(infonce[0]).encoder(CLIPS)
    def ddp(s):
        for k in [*s]: s[f'module.{k}'] = s.pop(k)
    old = load_released(rewritten(tmp_path/'old.tar', state, ddp, _use_new_zipfile_serialization=False))
    assert not old.checked and 'no' in str(old) and torch.equal(old.encoder(CLIPS), want) and old.view is None
    with pytest.raises(CheckpointError, match='--view'): old.ask_view()
    def single(s):
        for k in [*s]:
            if '.block' in k: del s[k]
    one = load_released(rewritten(tmp_path/'x-flow.tar', state, single))
    assert one.view=='flow' and not one.report.duplicated and torch.equal(one.encoder(CLIPS), want)
    assert load_released(tmp_path/'x-flow.tar', view='rgb').view=='rgb'
    raw = (tmp_path/'old.tar').read_bytes()
    assert raw.count(b'cpu') # as if it had been saved from a GPU
    (tmp_path/'gpu.tar').write_bytes(raw.replace(b'X\x03\x00\x00\x00cpu', b'X\x03\x00\x00\x00gpu'))
    assert torch.equal(load_released(tmp_path/'gpu.tar').encoder(CLIPS), want)


NAME = 'encoder_q.0.Mixed_3c.branch1.1.conv1.weight'
TWIN = 'encoder_q.0.block3.2.branch1.1.conv1.weight'


def without(s): del s[NAME], s[TWIN]
def reshaped(s): s[NAME] = s[TWIN] = torch.zeros(3, 3)
def infinite(s):
    s[NAME] = s[TWIN] = s[NAME].clone()
    s[NAME].view(-1)[5] = torch.inf
def apart(s): s[TWIN] = s[TWIN] + 1
def far(s): s['queue_ptr'] = torch.tensor([K])


@pytest.mark.parametrize('change, field, name', [(without, 'missing', NAME), (reshaped, 'wrong_shape', NAME),
    (infinite, 'not_finite', NAME), (apart, 'differing', TWIN), (far, 'wrong_shape', 'queue_ptr')])
def test_what_is_wrong_is_named(infonce, tmp_path, change, field, name):
    path = rewritten(tmp_path/'x.tar', infonce[1], change)
    with pytest.raises(CheckpointError) as e: load_released(path)
    assert name in str(e.value) and str(path) in str(e.value) and '\n' not in str(e.value)
    r = load_released(path, strict=False)
    assert [*getattr(r.report, field)] == [name] and name in str(r.report)
    lost = field in ('missing', 'wrong_shape') and name==NAME
    assert (r.encoder is None)==lost and r.momentum is not None


def test_what_is_too_much_is_named(infonce, tmp_path):
    def more(s): s['encoder_q.0.extra.weight'] = torch.zeros(2)
    r = load_released(rewritten(tmp_path/'x.tar', infonce[1], more))
    assert r.report.unused == ['encoder_q.0.extra.weight'] and 'extra.weight' in str(r)
    assert len(r.report.used + r.report.duplicated + r.report.unused) == 1859


def test_harmful_files_are_refused(infonce, tmp_path):
    "In one sentence, within seconds, without much memory, and nothing is run."
    raw = infonce[0].read_bytes()
    class Bomb:
        def __reduce__(self): return os.system, (f'touch {tmp_path}/exploded',)
    bombs = {'zip.tar': {'state_dict': Bomb()}, 'legacy.tar': {'state_dict': Bomb()}}
    for name, x in bombs.items(): torch.save(x, tmp_path/name, _use_new_zipfile_serialization='zip' in name)
    (tmp_path/'bare.tar').write_bytes(pickle.dumps(Bomb()))
    (tmp_path/'short.tar').write_bytes(raw[:len(raw)//2])
    flipped = bytearray(raw)
    flipped[len(raw)//2] ^= 16
    (tmp_path/'flipped.tar').write_bytes(flipped)
    with zipfile.ZipFile(tmp_path/'big.tar', 'w', zipfile.ZIP_DEFLATED) as z:
        z.writestr('x/data.pkl', pickle.dumps({}, 2))
        with z.open('x/data/0', 'w', force_zip64=True) as f:
            for _ in range(300): f.write(bytes(2**20))
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ('zip', 'legacy', 'bare', 'short', 'flipped', 'big'):
        with pytest.raises(CheckpointError) as e: load_released(tmp_path/f'{name}.tar')
        assert '\n' not in str(e.value) and f'{name}.tar' in str(e.value) and len(str(e.value)) < 400
    assert not (tmp_path/'exploded').exists()
    assert time.monotonic() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000 # kilobytes


def iic_file(path, videos=20):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = r3d18_iic()
        banks = {k: torch.randn(videos, 512) for k in ('memory_l', 'memory_ab', 'memory_neg')}
    opt = torch.optim.SGD(net.parameters(), lr=.01, momentum=.9)
    for p in net.parameters(): p.grad = torch.ones_like(p)
    opt.step()
    contrast = {'params': torch.tensor([1024, .07, -1, -1, .5])} | banks
    torch.save({'opt': Namespace(modality='res', model='r3d'), 'model': net.state_dict(), 'epoch': 240,
        'contrast': contrast, 'optimizer': opt.state_dict()}, path)
    return net.eval(), banks


@torch.inference_mode()
def test_iic(tmp_path):
    with torch.inference_mode(False): net, banks = iic_file(tmp_path/'iic.pth')
    r = load_released(tmp_path/'iic.pth')
    assert (r.method, r.backbone, r.view, r.epoch) == ('iic', 'r3d18_iic', 'rgb', 240)
    assert r.options['modality']=='res'
    assert torch.equal(r.encoder(CLIPS), net(CLIPS)) and not r.report.unused
    back = torch.load(save_released(r, tmp_path/'again.pth'), weights_only=True)
    copy.deepcopy(net).load_state_dict(back['model'])
    assert all(torch.equal(back['model'][k], v) for k, v in net.state_dict().items())
    assert all(torch.equal(back['contrast'][k], v) for k, v in banks.items()) and len(back['contrast'])==4
    assert len(back['optimizer']['param_groups'])==1
    assert torch.equal(load_released(tmp_path/'again.pth').encoder(CLIPS), net(CLIPS))
