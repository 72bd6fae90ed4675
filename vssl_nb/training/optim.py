"How far to walk in each step, from the first epoch to the last."

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

def steps(
    drops:Sequence[float], # epochs at which the rate is multiplied by `gamma`
    gamma:float=0.1, # the factor of each drop
)->Callable[[float],float]: # epoch -> factor of the base rate
    "Piecewise constant: the released CoCLR schedule."
    return lambda epoch: gamma**sum(epoch >= d for d in drops)

def warmup_cosine(
    epochs:float, # E, the length of the training
    warmup:float=0, # w, epochs of linear climb
    floor:float=0., # the factor never falls below this after the warm-up
)->Callable[[float],float]: # epoch -> factor of the base rate
    "Linear warm-up, then half a cosine: MoQuad (LARS), ProViCo (20 of 200 epochs)."
    if warmup >= epochs:
        raise ValueError(f'warmup={warmup} must be shorter than the training, epochs={epochs}')
    def factor(epoch:float)->float:
        if epoch < warmup: return epoch/warmup
        return max(floor, (1 + math.cos(math.pi*min(1, (epoch-warmup)/(epochs-warmup))))/2)
    return factor

def _layer_steps(weights:list[Tensor], grads:list[Tensor], group:dict[str,Any])->list[Tensor]: # r (g + λ w)
    w, g = (torch.stack(torch._foreach_norm(x)) for x in (weights, grads))
    rate = group['trust']*w/(g + group['weight_decay']*w + group['eps'])
    # weights of length 0 take a plain step; without a gradient the decay alone would be a full one (asked on
    # the device, which need not be waited for)
    rate = torch.where(g > 0, torch.where(w > 0, rate, 1.), 0.)
    decayed = torch._foreach_add(grads, weights, alpha=group['weight_decay'])
    torch._foreach_mul_(decayed, list(rate.unbind()))
    return list(decayed)

class LARS(torch.optim.Optimizer):
    "SGD with momentum and a rate for each layer (You, Gitman and Ginsburg 2017); none for biases and norms."
    def __init__(self,
        params:Iterable[Any], # parameters, or groups; those of at most one axis are left out of `trust`
        lr:float, # base learning rate (MoQuad: 3.2 at batch 256)
        weight_decay:float=0., # L2; not for parameters of at most one axis
        momentum:float=.9,
        trust:float=.001, # a step at lr=1 goes this share of the length of the weights
        eps:float=1e-8, # added to the length of the gradient
    ):
        least = dict(lr=lr, weight_decay=weight_decay, momentum=momentum, trust=trust, eps=eps)
        for name,value in least.items():
            if not 0 <= value < math.inf: raise ValueError(f'LARS: {name}={value} must be 0 or more')
        super().__init__(params, least)

    @torch.no_grad()
    def step(self,
        closure:Callable[[], Any]|None=None, # computes the loss again, with gradients
    )->Any: # what the closure returned
        "One step of all layers; never waits for a GPU."
        loss = None
        if closure is not None:
            with torch.enable_grad(): loss = closure()
        for group in self.param_groups: self._step_group(group)
        return loss

    def _step_group(self, group:dict[str,Any])->None:
        learn = [p for p in group['params'] if p.grad is not None]
        if not learn: return
        steps_: list[Tensor] = [p.grad for p in learn]
        layers = [i for i,p in enumerate(learn) if p.ndim > 1]
        if layers: # out of place: the gradients belong to the caller
            scaled = _layer_steps([learn[i] for i in layers], [steps_[i] for i in layers], group)
            for i,d in zip(layers, scaled): steps_[i] = d
        for p in learn:
            if not self.state[p]: self.state[p]['momentum_buffer'] = torch.zeros_like(p)
        v: list[Tensor] = [self.state[p]['momentum_buffer'] for p in learn]
        torch._foreach_mul_(v, group['momentum'])
        torch._foreach_add_(v, steps_)
        torch._foreach_add_(learn, v, alpha=-group['lr'])

def optimizer(
    params:Iterable[nn.Parameter], # frozen ones are left out
    name:str='adam', # 'adam', 'adamw', 'sgd' or 'lars'
    lr:float=1e-3, # base learning rate; `fit` multiplies it by the schedule
    weight_decay:float=1e-5, # L2 for adam, sgd and lars, decoupled for adamw
    momentum:float=0.9, # of sgd and lars
)->torch.optim.Optimizer: # over the parameters that learn
    "The optimizers of the papers by name, all tensors in a few calls; raises ValueError for another name."
    learn = [p for p in params if p.requires_grad]
    if not learn: raise ValueError('there is no parameter to train: all of them are frozen')
    if name=='adam': return torch.optim.Adam(learn, lr=lr, weight_decay=weight_decay, fused=True)
    if name=='adamw': return torch.optim.AdamW(learn, lr=lr, weight_decay=weight_decay, fused=True)
    if name=='sgd':
        return torch.optim.SGD(learn, lr=lr, weight_decay=weight_decay, momentum=momentum, fused=True)
    if name=='lars': return LARS(learn, lr=lr, weight_decay=weight_decay, momentum=momentum)
    raise ValueError(f"optimizer={name!r} is unknown; use 'adam', 'adamw', 'sgd' or 'lars'")
