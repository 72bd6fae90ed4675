"An encoder or a classifier from its file, and a video of anybody's: features, and probabilities per class."

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..training.checkpoints import (CheckpointError, export_encoder, read_encoder, read_heads, read_tensors,
    write_whole)
from ..measure.classify import CropClips, Linear, Predictions, Testing, average_scores, clip_scores, \
    crop_boxes
from ..data.clips import TestClips, collate, one_of
from ..measure.features import extract_clips, mean_of_clips
from ..training.machine import Machine, init_worker
from ..data.manifest import Manifest, ManifestError, Row, find_videos, read
from ..measure.gaussian import video_probabilities
from ..data.motion import tvl1_live
from ..measure.protocols import Protocol
from ..data.video import VideoError, probe
from ..data.views import Views, streams

class _Given(Manifest):
    "A table of videos, some of them in memory."
    def __init__(self, rows:list[Row], frames:dict[int,Tensor]):
        super().__init__(Path('own videos'), rows)
        self.frames = frames

    def decode(self, row, numbers, what='clips'):
        if row not in self.frames: return super().decode(row, numbers, what)
        return self.frames[row][torch.as_tensor(list(numbers))]

def _probed(video:Any, i:int)->Row: # a path, or frames
    if isinstance(video, Tensor):
        if video.dtype!=torch.uint8 or video.ndim!=4 or video.shape[3]!=3 or not len(video):
            raise ValueError(f'frames must be uint8 (F, H, W, 3), here {video.dtype} {tuple(video.shape)}')
        return Row(f'frames {i}', frames=len(video), height=video.shape[1], width=video.shape[2])
    try: p = probe(video)
    except VideoError as e: return Row(str(video), status=' '.join(e.reason.split()))
    return Row(str(video), frames=p.frames, fps=p.fps, width=p.width, height=p.height)

def as_manifest(
    videos:Sequence[Any], # paths, or frames (F, H, W, 3) uint8
)->Manifest: # a row for each; `status` says why one cannot be read
    "Videos of one's own as a table. ValueError where there is none."
    if isinstance(videos, (str, Path)) or not len(videos):
        raise ValueError('videos: none was named; give a list of files, or a folder of videos')
    with ThreadPoolExecutor() as pool: rows = list(pool.map(_probed, videos, range(len(videos))))
    rows = [Row(**vars(r) | {'source': f'{i}'}) for i,r in enumerate(rows)]
    return _Given(rows, {i: v for i,v in enumerate(videos) if isinstance(v, Tensor)})

def videos_of(
    data, # a manifest.csv, the folder that holds one, or any folder of videos
    names:Sequence[str|Path]=(), # of videos in it; none: all
)->Manifest:
    "A folder of videos as a table: its manifest if it has one, else what is in it. ManifestError."
    path = Path(data)
    if path.is_dir() and not (path/'manifest.csv').exists():
        return as_manifest([path/v for v in names or find_videos(path)])
    found = read(data)
    at = {r.video: r for r in found.rows}
    for v in names:
        if str(v) not in at: raise ManifestError(f'{found.path}: has no video {str(v)!r}; name it as the '
            'manifest does, or leave --data out')
    if not names: return found
    some = Manifest(found.path, [at[str(v)] for v in names])
    if type(found) is not Manifest: raise ManifestError(f'{data}: is no file; leave the names of videos out')
    return some

# of `Views`, as a file names them
VIEW_OPTIONS = ('residual', 'residual_scale', 'flow_flip', 'flow_colour', 'mean', 'std')

def solver(
    about:Mapping[str,Any], # what an encoder's file says
    flow:str='', # 'stored' or 'live'; '': as in training
)->Callable|None: # for `Views(live=)`
    "What computes the flow, if the view is made of it and it is not stored."
    if 'flow' not in streams(about['view']): return None
    how = flow or about.get('flow', 'stored')
    one_of(('stored', 'live'), flow=how)
    return tvl1_live if how=='live' else None

def make_views(about:Mapping[str,Any], flow:str='')->dict[str,Any]: # arguments of `Views`, besides its name
    "How an encoder's view is made."
    how = {k: about[k] for k in VIEW_OPTIONS if k in about}
    return how | ({} if (live := solver(about, flow)) is None else {'live': live})

def refuse_missing_flow(m:Manifest, rows:Sequence[int], about:Mapping[str,Any], live:bool)->None:
    "ValueError for videos whose flow is neither stored nor to be computed."
    lacking = [m.rows[r].video for r in rows if not m.rows[r].flow]
    if live or 'flow' not in streams(about['view']) or not lacking: return
    raise ValueError(f"{lacking[0]}: has no stored flow, and this network sees nothing else; name a manifest "
        "with flow (--data; `vssl-nb flow` computes it), or ask for live flow (--flow live)")

class Preprocess:
    "From a video to the clips that an encoder was trained to see."
    def __init__(self,
        about:Mapping[str,Any], # what the encoder's file says
        flow:str='', # see `solver`
        clips:int|None=None, # windows of a video; None: as the training was measured
    ):
        lacks = [k for k in ('view', 'length', 'stride', 'size') if k not in about]
        if lacks: raise ValueError(f'{lacks[0]}: the file of this encoder does not say it; give `about` with '
            'view, length, stride and size to `export_encoder`')
        self.about, self.how = dict(about), make_views(about, flow)
        self.clips = clips or about.get('clips', 10)

    def __call__(self,
        video:Any, # a path, or frames (F, H, W, 3) uint8
    )->Tensor: # (N, 3, T, size, size) float32
        "The clips of one video. VideoError."
        m = as_manifest([video])
        if m.rows[0].status!='ok': raise VideoError(video, m.rows[0].status)
        return self.row(m, 0)

    def row(self, manifest:Manifest, row:int)->Tensor: # (N, 3, T, size, size) float32
        "The clips of a row of a manifest, which may name stored flow. VideoError."
        a, live = self.about, 'live' in self.how
        refuse_missing_flow(manifest, [row], a, live)
        data = TestClips(manifest, [row], self.clips, a['length'], a['stride'], a['size'], None,
            a.get('pad', 'first'), load=streams(a['view'], live))
        batch = collate(data.__getitems__(list(range(len(data)))))
        if bad := batch.pop('bad'): raise VideoError(manifest.rows[row].video, bad[0][1])
        return Views((a['view'],), **self.how)(batch)[a['view']][:, 0]

def _refuse_foreign(path:Path, about:Mapping[str,Any], outside:bool)->None:
    if ':' in about.get('view', '') and not outside:
        raise CheckpointError(f"{path}: names {about['view']!r}, code that is not of this library; open its "
            'run folder, or pass outside=True if you trust whoever made the file')

def _trusted(folder:Path)->bool: # a run folder of one's own names one's own code
    try: said = json.loads((folder/'recipe.json').read_text(encoding='utf-8'))
    except (OSError, ValueError): return False
    return any(':' in str(said.get(k, '')) for k in ('view', 'backbone'))

def open_encoder(
    source, # an encoder.safetensors, or the run folder that holds it
    flow:str='', # 'stored' or 'live', see `solver`; '': as in training
    clips:int|None=None, # windows of a video; None: as the training was measured
    outside:bool=False, # as in `checkpoints.read_encoder`
)->tuple[nn.Module,Preprocess]: # in eval mode, without gradient; video -> clips
    "An encoder and what turns a video into its input. CheckpointError."
    path = Path(source)
    if path.is_dir(): path, outside = path/'encoder.safetensors', outside or _trusted(path)
    encoder, about = read_encoder(path, outside)
    _refuse_foreign(path, about, outside)
    return encoder, Preprocess(about, flow, clips)

LINEAR_PARTS = ('weight', 'bias', 'ids', 'mean', 'shift', 'scale') # tensors of a `Linear`

class VideoClassifier(nn.Module):
    "Encoder and linear head, and how they look at a video: `logits(x)` of clips."
    def __init__(self,
        encoder:nn.Module, # clip (B, 3, T, H, W) -> (B, D)
        linear:Linear, # what a feature is made into scores by
        about:dict[str,Any], # view, clip and `classifier`, as the file says
        gaussian:nn.Module|None=None, # of a classifier that draws embeddings: features -> (B, 2, D)
    ):
        super().__init__()
        self.encoder, self.linear, self.about, self.gaussian = encoder, linear, about, gaussian
        says = about['classifier']
        self.view, self.classes = about['view'], list(says['classes'])
        self.how:Testing|Protocol = Testing(**says['testing']) if says.get('testing') \
            else Protocol(**says['protocol'])

    def logits(self, x:Tensor)->Tensor: # clips (B, 3, T, H, W) -> (B, C) float64
        "Scores of the classes; of a Gaussian, those of its mean."
        z = self.encoder(x)
        return self.scores(z if self.gaussian is None else self.gaussian(z)[:,0])

    def of_clips(self, x:Tensor)->Tensor: # clips (B, 3, T, H, W) -> (B, C), or (B, 2, D) of Gaussians
        "What is kept of clips until `answer`."
        return self.logits(x) if self.gaussian is None else self.gaussian(self.encoder(x))

    def answer(self, said:dict[int,Tensor])->Tensor: # window -> (crops, ...) of `of_clips` -> (C,)
        "The probabilities of one video."
        says = self.about['classifier']
        if self.gaussian is None: return average_scores(said, says['testing']['average'])
        x = torch.stack([said[i] for i in sorted(said)]).unflatten(-1, (2, -1))
        return video_probabilities(x, self.scores, says['mixture'], says['samples'], says['seed'])

    def scores(self, z:Tensor)->Tensor: # features (B, D) -> (B, C) float64
        "The head alone, where the features are."
        head = replace(self.linear, **{k: getattr(self.linear, k).to(z.device) for k in LINEAR_PARTS})
        return head.logits(z.float(), len(self.classes))

    def __str__(self)->str: return _describe(self)

def _describe(c:VideoClassifier)->str:
    a, says = c.about, c.about['classifier']
    clip = f"{a['length']} frames" + (f", one in {a['stride']}" if a['stride']>1 else '')
    names = ', '.join(c.classes[:8]) + (f', … {len(c.classes)} in all' if len(c.classes) > 8 else '')
    test = f'  test      {c.how}' if isinstance(c.how, Testing) else str(c.how)
    return '\n'.join([f"classifier {says.get('name', '')} of {says.get('run') or 'no run'}: {a['backbone']} "
        f"on {c.view}, {clip} of {a['size']} px", f'  classes   {names}', test]
        + ['  !!! chosen on the test videos !!!']*(says.get('selection')=='test'))

def export_classifier(
    path, # e.g. `runs/mine/classifier.safetensors`
    encoder:nn.Module, # from `backbones.create`
    linear:Linear,
    classes:Sequence[str], # names, in the order of their ids
    how:Testing|Protocol, # how a video is looked at
    about:dict[str,Any], # backbone, view and its options, length, stride, size, pad
    heads:Mapping[str,nn.Module]|None=None, # between encoder and `linear`, see `export_encoder`
    **says, # name, run, split, selection, ...: whatever else is to be told
)->Path: # the path
    "Write all that it takes to classify a video, whole or not at all. CheckpointError."
    tested = {'testing': asdict(how)} if isinstance(how, Testing) else {'protocol': asdict(how)}
    made = {'classes': list(classes), 'normalise': linear.normalise} | tested | says
    about = {k: v for k,v in about.items() if k not in ('heads', 'sha256')} # of another file
    return export_encoder(path, encoder, about | {'classifier': made}, heads,
        tensors={k: getattr(linear, k) for k in LINEAR_PARTS})

def _classifier_file(source)->Path:
    path = Path(source)
    if not path.exists(): raise CheckpointError(f'{path}: there is no such file or folder; name a run that '
        'was fine-tuned or probed, or its classifier.safetensors')
    if not path.is_dir(): return path
    if (path/'classifier.safetensors').exists(): return path/'classifier.safetensors'
    try: card = json.loads((path/'card.json').read_text(encoding='utf-8'))
    except (OSError, ValueError): card = None
    if not isinstance(card, dict): raise CheckpointError(f'{path}: is not a run folder (no card.json); '
        'name a run that was fine-tuned or probed')
    go_on = 'its fine-tuning was not finished: go on with `vssl-nb finetune … --resume`'
    todo = go_on if 'training' in card else (f'make one: `vssl-nb probe {path}` (a linear one, '
        f'seconds) or `vssl-nb finetune {path}`')
    raise CheckpointError(f'{path}: has no classifier.safetensors; {todo}')

def load_classifier(
    source, # a classifier.safetensors, or the run folder that holds it
    outside:bool=False, # as in `checkpoints.read_encoder`
)->VideoClassifier: # in eval mode, without gradient
    "A classifier from its file. CheckpointError."
    path = _classifier_file(source)
    outside = outside or Path(source).is_dir() and _trusted(Path(source))
    encoder, about = read_encoder(path, outside)
    _refuse_foreign(path, about, outside)
    if 'classifier' not in about: raise CheckpointError(f'{path}: is an encoder, without a classifier; '
        'run `vssl-nb probe` or `vssl-nb finetune` on its run folder')
    head:Any = read_tensors(path, outside)
    try:
        linear = Linear(**head, normalise=about['classifier']['normalise'])
        gaussian = read_heads(path, outside).get('gaussian') if about['classifier'].get('mixture') else None
        return VideoClassifier(encoder, linear, about, gaussian).eval()
    except (KeyError, TypeError) as e:
        raise CheckpointError(f'{path}: the classifier in it is not one of this version ({e})') from e

def _by_clips(c:VideoClassifier, m:Manifest, rows:list[int], live:bool, batch:int, machine:Machine,
        views:dict[str,Any])->tuple[dict[int,Tensor],dict[int,str]]:
    "Answers of clips, averaged, as in fine-tuning: row -> (C,), row -> why not."
    t, a, device = c.how, c.about, machine.place()
    assert isinstance(t, Testing)
    data = CropClips(m, rows, t, a['length'], a['stride'], a['size'], a.get('pad', 'first'),
        streams(c.view, live), a['classifier'].get('seed', 0))
    batches = DataLoader(data, max(1, batch//len(crop_boxes(9, 16, t.crops)[0])), collate_fn=collate,
        num_workers=machine.workers, worker_init_fn=init_worker if machine.workers else None,
        pin_memory=device.type=='cuda', generator=torch.Generator())
    scores, bad = clip_scores(c, batches, Views((c.view,), **views), device, machine.progress)
    return {r: c.answer(s) for r,s in scores.items() if r not in bad}, bad

def _by_features(c:VideoClassifier, m:Manifest, rows:list[int], batch:int, machine:Machine,
        views:dict[str,Any])->tuple[dict[int,Tensor],dict[int,str]]:
    "The answer to the mean feature, as of a probe: row -> (C,), row -> why not."
    p, good, bad = c.how, dict[int,Tensor](), dict[int,str]()
    assert isinstance(p, Protocol)
    for r,found in extract_clips(c.encoder, m, rows, c.view, p, batch=batch, machine=machine, **views):
        if isinstance(found, str): bad[r] = found
        else: good[r] = c.scores(mean_of_clips(found, p.clip_norm)[None]).softmax(1)[0]
    return good, bad

def predict_videos(
    classifier:VideoClassifier,
    videos, # a manifest, or a list of paths and of frames (F, H, W, 3) uint8
    *,
    flow:str='', # 'stored' or 'live', see `solver`; '': as in training
    batch:int=64, # clips at a time on a GPU
    machine:Machine=Machine(progress=False),
)->Predictions: # `row`: positions in the manifest or list; `dropped`: those that cannot be read, and why
    "Class probabilities of any videos. ValueError where not one can be read."
    c, m = classifier, videos if isinstance(videos, Manifest) else as_manifest(videos)
    views = make_views(c.about, flow)
    rows = [i for i,r in enumerate(m.rows) if r.status=='ok']
    bad = {i: r.status for i,r in enumerate(m.rows) if r.status!='ok'}
    refuse_missing_flow(m, rows, c.about, 'live' in views)
    good = dict[int,Tensor]()
    if rows:
        good, more = _by_clips(c, m, rows, 'live' in views, batch, machine, views) \
            if isinstance(c.how, Testing) else _by_features(c, m, rows, batch, machine, views)
        bad |= more
    if not good:
        first, many = min(bad), f' (and {len(bad)-1} others: not one can be read)' if len(bad) > 1 else ''
        raise ValueError(f'{m.rows[first].video}: {bad[first]}{many}')
    kept = sorted(good)
    label = torch.tensor([c.classes.index(m.rows[r].label) if m.rows[r].label in c.classes else -1
        for r in kept])
    return Predictions(torch.stack([good[r] for r in kept]), label, torch.tensor(kept), c.classes,
        {'view': c.view}, dict(sorted(bad.items())))

PREDICTION_FILES = ('.csv', '.json')

def check_prediction_file(path)->Path:
    "ValueError for a kind of file that is not known."
    if Path(path).suffix not in PREDICTION_FILES:
        raise ValueError(f"{path}: ends in neither {' nor '.join(PREDICTION_FILES)}; name a file that does")
    return Path(path)

def write_predictions(
    path, # ends in .csv or .json
    found:Predictions,
    videos:Sequence[str], # name of each row
)->Path:
    "Probabilities of all classes, and what could not be read, whole or not at all."
    path, top = check_prediction_file(path), found.p.argmax(1).tolist()
    p = dict(zip(found.row.tolist(), found.p.tolist()))
    best = dict(zip(p, top))
    rows:list[dict[str,Any]] = [{'video': videos[r], 'status': 'ok', 'predicted': found.classes[best[r]],
        'probabilities': dict(zip(found.classes, p[r]))} if r in p else {'video': videos[r],
        'status': found.dropped[r]} for r in sorted({*p, *found.dropped})]
    if path.suffix=='.json': text = json.dumps(rows, indent=1, ensure_ascii=False) + '\n'
    else:
        out = io.StringIO()
        csv.writer(out, lineterminator='\n').writerows([['video', 'status', 'predicted', *found.classes],
            *([r['video'], r['status'], r.get('predicted', ''), *(f'{x:.6f}' for x in
                r['probabilities'].values())] if 'predicted' in r else
                [r['video'], r['status'], *['']*(len(found.classes) + 1)] for r in rows)])
        text = out.getvalue()
    return write_whole(path, lambda f: f.write(text.encode()))
