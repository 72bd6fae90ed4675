"A folder with the weights, what they are, and a page for people; one call opens it."

import importlib
import json
from pathlib import Path
from typing import Any

from torch import nn

from ..training.checkpoints import CheckpointError, export_encoder, read_encoder, read_heads, write_whole

WEIGHTS, CONFIG, CARD = 'model.safetensors', 'config.json', 'README.md'

def model_card(
    about:dict[str,Any], # what config.json says
    text:str='', # a paragraph of one's own
)->str: # markdown with the header that the Hub reads
    "The page of an encoder."
    told = {'backbone': 'network', 'view': 'looks at', 'length': 'frames of a clip',
        'stride': 'frames from one to the next', 'size': 'pixels, height and width', 'recipe': 'trained by',
        'method': 'method', 'epoch': 'epochs', 'step': 'steps', 'source': 'converted from',
        'sha256': 'SHA-256 of the weights'}
    rows = [f'| {words} | {about[k]} |' for k,words in told.items() if about.get(k) is not None]
    name = about.get('recipe') or about.get('method') or about['backbone']
    return '\n'.join(['---', 'library_name: vssl_nb', 'pipeline_tag: video-classification', 'tags:',
        '- video', '- self-supervised-learning', '---', '', f'# {name}', '',
        *([text, ''] if text else []), '| | |', '| --- | --- |', *rows, '', '```python',
        'from vssl_nb.runs.hub import from_pretrained',
        "encoder = from_pretrained('FOLDER OR HUB NAME') # clips (B, 3, T, H, W) -> features (B, D)",
        '```', ''])

def save_pretrained(
    folder, # made, or written over
    encoder:nn.Module, # from `backbones.create`, or of a run
    about:dict[str,Any], # at least `backbone`; plain values only
    heads:dict[str,nn.Module]|None=None, # from `heads.make_head`
    text:str='', # a paragraph for the card
)->Path: # the folder
    "Write an encoder as a folder: weights, config.json and a card. `CheckpointError`."
    folder = Path(folder)
    export_encoder(folder/WEIGHTS, encoder, about, heads)
    about = read_encoder(folder/WEIGHTS)[1]
    write_whole(folder/CONFIG, lambda f: f.write((json.dumps(about, indent=1) + '\n').encode()))
    write_whole(folder/CARD, lambda f: f.write(model_card(about, text).encode()))
    return folder

def _hub()->Any: # optional: everything but the Hub works without it
    try: return importlib.import_module('huggingface_hub')
    except ImportError as e:
        raise CheckpointError('huggingface_hub is not installed: pip install huggingface_hub, or give the '
            'folder of an encoder') from e

def pretrained_folder(
    name, # a folder, or 'owner/name' on the Hub
)->Path: # a folder with the three files
    "Where the files of an encoder are; the Hub's are fetched. `CheckpointError`."
    path = Path(name)
    if path.is_dir():
        if not (path/WEIGHTS).is_file(): raise CheckpointError(f'{path}: has no {WEIGHTS}, so it is not the '
            'folder of an encoder; `vssl-nb convert RUN FOLDER` makes one')
        return path
    if path.is_file() or str(name).count('/')!=1 or str(name)[0] in './~':
        raise CheckpointError(f'{name}: is neither a folder nor a name on the Hub, owner/name')
    try: return Path(_hub().snapshot_download(str(name), allow_patterns=[WEIGHTS, CONFIG, CARD]))
    except CheckpointError: raise
    except Exception as e: # its own errors: no such name, no network, not allowed
        raise CheckpointError(f'{name}: there is no such folder here, and it cannot be had from the Hub '
            f'({type(e).__name__}); check the name and the connection') from e

def from_pretrained(
    name, # a folder, or 'owner/name' on the Hub
    outside:bool=False, # may it name a backbone of somebody's own? that code is imported
)->nn.Module: # (B, 3, T, H, W) -> (B, D), in eval mode, without gradient; with `.about` and `.kept_heads`
    "An encoder that somebody shares. `CheckpointError`."
    folder = pretrained_folder(name)
    encoder, about = read_encoder(folder/WEIGHTS, outside)
    try: said = json.loads((folder/CONFIG).read_text(encoding='utf-8'))
    except (OSError, ValueError) as e:
        raise CheckpointError(f'{folder/CONFIG}: cannot be read ({type(e).__name__}); take the folder '
            'again') from e
    if not isinstance(said, dict) or said.get('sha256')!=about['sha256']:
        raise CheckpointError(f'{folder/CONFIG}: belongs to other weights than {WEIGHTS}; take the folder '
            'again')
    found: Any = encoder
    found.about, found.kept_heads = about, read_heads(folder/WEIGHTS, outside)
    return encoder

def push_to_hub(
    folder, # of an encoder
    name:str, # 'owner/name'
    private:bool=True, # only its owner sees it
    token:str|None=None, # None: the one of `hf auth login`
    api:Any=None, # what uploads; None: `huggingface_hub.HfApi`
)->str: # its address
    "Upload the three files of an encoder. `CheckpointError`."
    folder = pretrained_folder(Path(folder))
    from_pretrained(folder) # refuses what nobody could load
    api = _hub().HfApi(token=token) if api is None else api
    try:
        api.create_repo(repo_id=name, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=name, folder_path=str(folder),
            allow_patterns=[WEIGHTS, CONFIG, CARD], commit_message='An encoder'))
    except (OSError, ValueError) as e: # so are the errors of huggingface_hub
        raise CheckpointError(f'{name}: cannot be uploaded ({str(e).strip().splitlines()[0][:160]}); log in '
            'with hf auth login, or check the name') from e
