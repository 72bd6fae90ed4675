"Tensors on their way to a device, and whether a device has a compiler."

import logging

import torch
from torch import Tensor


def send_to(
    a: Tensor,  # on the CPU
    device: torch.device,  # where it is needed
) -> Tensor:  # there
    "Copy a small tensor to a device, to a GPU through pinned memory: the CPU does not wait."
    return a.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else a.to(device)


def compiler_fault(
    device: torch.device | str,
) -> str:  # name of an error; '' where it works
    "What `torch.compile` fails with on a device; tried, without PyTorch's own warnings."
    # it warns of a CUDA toolkit without a GPU, which a processor has no use for
    log = logging.getLogger("torch.utils.cpp_extension")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        torch.compile(torch.sin)(torch.zeros(2, device=device))
    except Exception as e:  # whatever is missing, all goes on without it
        return type(e).__name__
    finally:
        log.setLevel(before)
    return ""
