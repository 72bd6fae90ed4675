"A file of weights is a program. This room reads it without running it."

import io
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

class TorchFileError(ValueError):
    "A file that is not plain weights, not whole, or not harmless; the message says which."

MAX_STEPS = 4_000_000 # instructions of a pickle; the largest released file has some 200 thousand
MAX_PICKLE = 2**26 # bytes: 64 MiB

DTYPES_OF_STORAGES = dict(FloatStorage=torch.float32, DoubleStorage=torch.float64, HalfStorage=torch.float16,
    BFloat16Storage=torch.bfloat16, LongStorage=torch.int64, IntStorage=torch.int32, ShortStorage=torch.int16,
    CharStorage=torch.int8, ByteStorage=torch.uint8, BoolStorage=torch.bool)

@dataclass(frozen=True)
class Storage:
    "Numbers in a row, somewhere in the file."
    key:str # its name there
    dtype:torch.dtype
    numel:int # how many

@dataclass(frozen=True)
class Stored:
    "A tensor that has not been read yet."
    storage:Storage
    offset:int # of its first number
    shape:tuple[int,...]
    stride:tuple[int,...]

@dataclass
class _NumpyType: # of a scalar
    code:str

def _tensor(storage, offset, shape, stride, *rest)->Stored:
    whole = (offset, *shape, *stride)
    if not isinstance(storage, Storage) or len(shape)!=len(stride) or len(shape) > 8 or \
            any(type(n) is not int or not 0 <= n < 2**48 for n in whole):
        raise TorchFileError('a tensor of impossible shape')
    last = offset + sum((n-1)*s for n,s in zip(shape, stride)) if prod(shape) else 0
    if prod(shape) > storage.numel or (prod(shape) and last >= storage.numel):
        raise TorchFileError(f'a tensor {tuple(shape)} that reaches beyond its {storage.numel} numbers')
    return Stored(storage, offset, tuple(shape), tuple(stride))

def _parameter(data, *rest)->Stored:
    if not isinstance(data, Stored): raise TorchFileError('a parameter that is no tensor')
    return data

def _numpy_type(code, *rest)->_NumpyType:
    if not re.fullmatch(r'[<=|]?[fiub][1248]', code): raise TorchFileError(f'a NumPy scalar of type {code!r}')
    return _NumpyType(code.lstrip('<=|'))

def _scalar(kind, raw)->Any: # a plain number
    found = np.frombuffer(raw, '<' + kind.code)
    if len(found)!=1: raise TorchFileError(f'a NumPy scalar of {len(found)} numbers')
    return found[0].item()

def _raw(text, coding)->bytes: # how pickles of protocol 2 write bytes
    if coding!='latin1' or len(text) > 16: raise TorchFileError('bytes that are no NumPy scalar')
    return text.encode('latin1')

def _size(shape)->tuple[int,...]:
    if len(shape) > 8: raise TorchFileError(f'a shape of {len(shape)} axes')
    return tuple(shape)

class _Settings(dict): # what `argparse.Namespace` held
    pass

KNOWN_NAMES:dict[str,Callable[...,Any]] = {'torch._utils _rebuild_tensor_v2': _tensor,
    'torch._utils _rebuild_tensor': _tensor, 'torch._utils _rebuild_parameter': _parameter,
    'torch Size': _size, 'collections OrderedDict': dict, 'argparse Namespace': _Settings,
    'numpy.core.multiarray scalar': _scalar, 'numpy._core.multiarray scalar': _scalar,
    'numpy dtype': _numpy_type, '_codecs encode': _raw}

def find_name(
    name:str, # 'module name', as `GLOBAL` has it
)->Any: # a function of this page, or a type of number
    "What a pickle may name. Nothing is imported. `TorchFileError`."
    module, _, word = name.partition(' ')
    if module in ('torch', 'torch.cuda') and word in DTYPES_OF_STORAGES: return DTYPES_OF_STORAGES[word]
    if name not in KNOWN_NAMES:
        raise TorchFileError(f'it names {name.replace(" ", ".")[:80]}, which is no part of plain weights, '
            'so it could run code')
    return KNOWN_NAMES[name]

def _call(function:Any, args:Any)->Any: # REDUCE and NEWOBJ
    if function in (dict, _Settings) and args: raise TorchFileError('a dict that is made of something else')
    if not any(function is f for f in KNOWN_NAMES.values()):
        raise TorchFileError('it calls something that is no function')
    return function(*args)

def _build(made:Any, state:Any)->None:
    if isinstance(made, _Settings): made.update({k: v for k,v in state.items() if type(k) is str})
    elif isinstance(made, _NumpyType):
        if state[1] not in ('<', '|', '='): raise TorchFileError('a NumPy scalar of another byte order')
    elif type(made) is not dict: # a state_dict carries versions of its modules: not needed
        raise TorchFileError(f'it sets the state of a {type(made).__name__}')

_PUSH = {'BININT', 'BININT1', 'BININT2', 'LONG1', 'LONG4', 'BINFLOAT', 'BINUNICODE', 'SHORT_BINUNICODE',
    'BINUNICODE8', 'BINBYTES', 'SHORT_BINBYTES', 'BINSTRING', 'SHORT_BINSTRING'}
_MAKE:dict[str,Callable[[],Any]] = {'NONE': lambda: None, 'NEWTRUE': lambda: True, 'NEWFALSE': lambda: False,
    'EMPTY_DICT': dict, 'EMPTY_LIST': list, 'EMPTY_TUPLE': tuple}

class PickleMachine:
    "Obeys the instructions of a pickle that make plain data."
    def __init__(self, storage:Callable[[Any],Storage]): # what `BINPERSID` means: where numbers are
        self.stack, self.marks, self.memo = list[Any](), list[int](), dict[int,Any]()
        self.storage = storage

    def taken(self)->list[Any]: # everything above the last mark
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def run(self,
        stream:BinaryIO, # ends behind the pickle
    )->Any: # what it made; tensors are `Stored`
        "Run to the end. `TorchFileError`."
        try:
            for n,(op,arg,_) in enumerate(pickletools.genops(stream)):
                if n > MAX_STEPS: raise TorchFileError(f'its pickle has more than {MAX_STEPS} instructions')
                if op.name=='STOP': return self.stack.pop()
                self.step(op.name, arg)
        except TorchFileError: raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as e:
            words = str(e).splitlines()[0][:100] if str(e) else type(e).__name__
            raise TorchFileError(f'its pickle is damaged ({words})') from e
        raise TorchFileError('its pickle has no end')

    def step(self, name:str, arg:Any)->None:
        "One instruction."
        s = self.stack
        if name in _PUSH:
            if type(arg) is int and arg.bit_length() > 128: raise TorchFileError('a number of over 128 bits')
            s.append(arg)
        elif name in _MAKE: s.append(_MAKE[name]())
        elif name in ('PROTO', 'FRAME'): pass
        elif name=='MARK': self.marks.append(len(s))
        elif name in ('BINPUT', 'LONG_BINPUT'): self.memo[arg] = s[-1]
        elif name=='MEMOIZE': self.memo[len(self.memo)] = s[-1]
        elif name in ('BINGET', 'LONG_BINGET'): s.append(self.memo[arg])
        else: _gather(self, name, arg)

def _put(made:Any, pairs:list[Any])->None: # SETITEM, SETITEMS
    if type(made) is not dict: raise TorchFileError(f'it puts entries into a {type(made).__name__}')
    for k,v in zip(pairs[::2], pairs[1::2], strict=True):
        if type(k) not in (str, int): raise TorchFileError(f'a dict with a {type(k).__name__} for a key')
        made[k] = v

def _gather(machine:PickleMachine, name:str, arg:Any)->None:
    "An instruction that makes one thing of several."
    s = machine.stack
    if name in ('SETITEM', 'SETITEMS'):
        pairs = machine.taken() if name=='SETITEMS' else [s.pop(), s.pop()][::-1]
        _put(s[-1], pairs)
    elif name in ('APPEND', 'APPENDS'):
        new = machine.taken() if name=='APPENDS' else [s.pop()]
        if type(s[-1]) is not list: raise TorchFileError(f'it appends to a {type(s[-1]).__name__}')
        s[-1].extend(new)
    elif name=='TUPLE': s.append(tuple(machine.taken()))
    elif name in ('TUPLE1', 'TUPLE2', 'TUPLE3'):
        n = int(name[-1])
        s[-n:] = [tuple(s[-n:])]
    elif name=='GLOBAL': s.append(find_name(arg))
    elif name=='STACK_GLOBAL':
        word, module = s.pop(), s.pop()
        s.append(find_name(f'{module} {word}'))
    elif name in ('REDUCE', 'NEWOBJ'):
        args, function = s.pop(), s.pop()
        s.append(_call(function, args))
    elif name=='BUILD':
        state = s.pop()
        _build(s[-1], state)
    elif name=='BINPERSID': s.append(machine.storage(s.pop()))
    else: raise TorchFileError(f'its pickle has the instruction {name}, which no file of weights needs')

def _declare(
    size:int, # bytes of the file
)->tuple[dict[str,Storage],Callable[[Any],Storage]]: # filled while a pickle runs; what `PickleMachine` needs
    "The storages that a pickle speaks of, together no larger than the file."
    declared = dict[str,Storage]()
    def storage(name:Any)->Storage:
        kind, dtype, key, _, numel, *view = name
        if kind!='storage' or type(key) is not str or type(numel) is not int or numel < 0 or any(view) \
                or not isinstance(dtype, torch.dtype):
            raise TorchFileError('it refers to something that is not a row of numbers')
        if key in declared:
            if declared[key]!=Storage(key, dtype, numel):
                raise TorchFileError(f'it has two storages of the name {key[:40]!r}')
            return declared[key]
        left[0] -= numel*dtype.itemsize
        if left[0] < 0: raise TorchFileError(f'it speaks of more numbers than its {size:,} bytes can hold')
        return declared.setdefault(key, Storage(key, dtype, numel))
    left = [size]
    return declared, storage

def _numbers(raw:bytes, of:Storage)->Tensor: # (numel,)
    if len(raw)!=of.numel*of.dtype.itemsize:
        raise TorchFileError(f'storage {of.key} has {len(raw)} bytes and should have {of.numel} numbers')
    return torch.frombuffer(bytearray(raw), dtype=of.dtype) if raw else torch.empty(0, dtype=of.dtype)

def _read_zip(path:Path)->tuple[Any,dict[str,Tensor]]: # what the pickle made; the storages
    size = path.stat().st_size
    with zipfile.ZipFile(path) as z:
        files = {i.filename: i for i in z.infolist()}
        if any(i.compress_type!=zipfile.ZIP_STORED or i.flag_bits & 1 for i in files.values()):
            raise TorchFileError('it is a compressed archive, and torch.save writes none')
        if sum(i.file_size for i in z.infolist()) > size:
            raise TorchFileError(f'its contents are larger than its {size:,} bytes: a zip bomb')
        top = [n.removesuffix('data.pkl') for n in files if re.fullmatch('[^/]+/data.pkl', n)]
        if len(top)!=1: raise TorchFileError('it is an archive without the data.pkl of torch.save')
        if files[f'{top[0]}data.pkl'].file_size > MAX_PICKLE: raise TorchFileError('its pickle is too long')
        if broken := z.testzip(): raise TorchFileError(f'damaged: the checksum of {broken} does not match')
        order = f'{top[0]}byteorder'
        if order in files and z.read(order)!=b'little': raise TorchFileError('it has another byte order')
        declared, storage = _declare(size)
        made = PickleMachine(storage).run(io.BytesIO(z.read(f'{top[0]}data.pkl')))
        missing = next((k for k in declared if f'{top[0]}data/{k}' not in files), None)
        if missing: raise TorchFileError(f'it lacks the numbers of storage {missing[:40]}')
        return made, {k: _numbers(z.read(f'{top[0]}data/{k}'), s) for k,s in declared.items()}

LEGACY_MAGIC = 0x1950a86a20f9469cfc6c # the first pickle of a file from before 1.6

def _read_legacy(path:Path)->tuple[Any,dict[str,Tensor]]: # as `_read_zip`
    size = path.stat().st_size
    declared, storage = _declare(size)
    with path.open('rb') as f:
        head = io.BytesIO(f.read(MAX_PICKLE))
        magic, version, system = (PickleMachine(storage).run(head) for _ in range(3))
        if magic!=LEGACY_MAGIC or version!=1001: raise TorchFileError('it is no file of torch.save')
        if not system.get('little_endian', True): raise TorchFileError('it has another byte order')
        made, keys = PickleMachine(storage).run(head), PickleMachine(storage).run(head)
        f.seek(head.tell())
        if not isinstance(keys, list) or sorted(map(str, keys))!=sorted(declared):
            raise TorchFileError('its list of storages is not that of its tensors')
        numbers = dict[str,Tensor]()
        for key in keys:
            n = f.read(8)
            if len(n)!=8: raise TorchFileError('its end is missing')
            if struct.unpack('<q', n)!=(declared[key].numel,):
                raise TorchFileError(f'storage {key[:40]} has another length than its tensors say')
            raw = f.read(declared[key].numel*declared[key].dtype.itemsize)
            if len(raw) < declared[key].numel*declared[key].dtype.itemsize:
                raise TorchFileError('its end is missing')
            numbers[key] = _numbers(raw, declared[key])
        if f.read(1): raise TorchFileError('something follows behind its last number')
    return made, numbers

def _placed(x:Any, numbers:dict[str,Tensor], done:dict[int,Any], depth:int=0)->Any:
    "The same with tensors in the places of `Stored`."
    if x is None or type(x) in (bool, int, float, str, bytes): return x
    if depth > 20: raise TorchFileError('it is nested too deeply')
    if id(x) in done: return done[id(x)]
    if isinstance(x, Stored):
        made: Any = numbers[x.storage.key].as_strided(x.shape, x.stride, x.offset)
    elif isinstance(x, dict): made = {k: _placed(v, numbers, done, depth+1) for k,v in x.items()}
    elif type(x) in (list, tuple): made = type(x)([_placed(v, numbers, done, depth+1) for v in x])
    else: raise TorchFileError(f'it holds a {type(x).__name__}, which is neither a number nor a container')
    done[id(x)] = made
    return made

def read_torch_file(
    path, # written by `torch.save`, of any version since 0.4
)->tuple[Any,bool]: # nested dicts, lists and tuples of tensors (on the CPU), numbers and words; checksums?
    "Read a file of weights without running anything in it, in memory of its size. `TorchFileError`."
    path = Path(path)
    if not path.is_file(): raise TorchFileError(f'{path}: there is no such file')
    try:
        with path.open('rb') as f: begin = f.read(4)
        if not begin: raise TorchFileError('it is empty')
        whole = begin[:2]==b'PK'
        made, numbers = _read_zip(path) if whole else _read_legacy(path)
        return _placed(made, numbers, {}), whole
    except TorchFileError as e: raise TorchFileError(f'{path}: was not loaded: {e}') from None
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError, NotImplementedError) as e:
        words = str(e).splitlines()[0][:100] if str(e) else type(e).__name__
        raise TorchFileError(f'{path}: was not loaded: it is damaged, or its end is missing ({words})') from e
