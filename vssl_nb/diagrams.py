"Drawings of methods in one style: boxes that learn and boxes that do not, arrows, frames, matrices and queues"

import io
from typing import Any,NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch,Polygon,Rectangle

def _array(x:Any)->np.ndarray: return np.asarray(x.detach().cpu() if hasattr(x, 'detach') else x)

LEARNS,FIXED,POSITIVE,INK = '#f6b26b','#d5dbe3','#1b7837','#333333'
DPI = 80

class Spot(NamedTuple):
    "Where a thing stands, in pixels from the upper left corner."
    x:float
    y:float
    w:float
    h:float
    @property
    def left(self)->tuple[float,float]: return self.x,self.y + self.h/2
    @property
    def right(self)->tuple[float,float]: return self.x + self.w,self.y + self.h/2
    @property
    def top(self)->tuple[float,float]: return self.x + self.w/2,self.y
    @property
    def bottom(self)->tuple[float,float]: return self.x + self.w/2,self.y + self.h

def ends(
    a:Spot|tuple, # a place, or a point (x, y)
    b:Spot|tuple,
)->tuple: # two points
    "Where an arrow from `a` to `b` begins and ends: at the edges that face each other."
    if not isinstance(a, Spot) and not isinstance(b, Spot): return a,b
    if not isinstance(a, Spot): return a,ends(b, a)[0]
    x,y,w,h = b if isinstance(b, Spot) else (*b, 0, 0)
    if x >= a.x + a.w: return a.right,b.left if isinstance(b, Spot) else b
    if x + w <= a.x: return a.left,b.right if isinstance(b, Spot) else b
    if y >= a.y + a.h: return a.bottom,b.top if isinstance(b, Spot) else b
    return a.top,b.bottom if isinstance(b, Spot) else b

class Diagram(Figure):
    "A sheet to draw on, measured in pixels; it displays itself."
    def __init__(self,
        width:int=560, # px
        height:int=200, # px
    ):
        super().__init__(figsize=(width/DPI, height/DPI), dpi=DPI)
        FigureCanvasAgg(self) # measures words without pyplot
        self.width,self.height = width,height
        self.boxes:list[tuple] = [] # their places, and the words that must fit into them
        self.ax = self.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
        self.ax.axis('off')
    def _repr_png_(self)->bytes:
        file = io.BytesIO()
        self.savefig(file, format='png', dpi=DPI)
        return file.getvalue()

def write_text(
    d:Diagram,
    x:float, # px
    y:float, # px, the middle of the words
    words:str,
    ha:str='center', # where x is in the words: left, center or right
)->Any: # matplotlib's text
    "Words on the sheet."
    return d.ax.text(x, y, words, ha=ha, va='center', color=INK, fontsize=10, linespacing=1.15, zorder=5)

def box(
    d:Diagram,
    x:float, # px, the upper left corner
    y:float,
    w:float, # px
    h:float,
    words:str='', # in the middle
    learns:bool|None=None, # orange if it does, grey if not; None = white: it has nothing to learn
    taper:float=0, # the right side is shorter by this share above and below, as encoders are drawn
)->Spot:
    "Something that is done to data."
    fill = 'white' if learns is None else LEARNS if learns else FIXED
    corners = [(x, y), (x + w, y + taper*h), (x + w, y + h - taper*h), (x, y + h)]
    d.ax.add_patch(Polygon(corners, fc=fill, ec=INK, lw=1, joinstyle='round', zorder=3))
    d.boxes.append((Spot(x, y, w, h), write_text(d, x + w/2, y + h/2, words) if words else None))
    return Spot(x, y, w, h)

def arrow(
    d:Diagram,
    *points:Spot|tuple, # from, around these points if there are any, to
    dashed:bool=False, # no gradient flows here
):
    "Data goes on, from place to place."
    path = [ends(points[0], points[1])[0], *points[1:-1], ends(points[-2], points[-1])[1]]
    look:dict = dict(color=INK, lw=1.2, ls=(0, (4, 3)) if dashed else '-', zorder=2)
    if len(path) > 2: d.ax.plot(*zip(*path[:-1]), **look)
    head:dict = dict(arrowstyle='-|>', mutation_scale=11, shrinkA=0, shrinkB=1)
    d.ax.add_patch(FancyArrowPatch(path[-2], path[-1], **head, **look))

def crowded(
    diagram:Diagram,
)->list[str]: # empty when all is well
    "Words that overlap other words, leave the picture or do not fit into their box."
    diagram.dpi = DPI # whoever has shown the figure may have changed it
    draws = FigureCanvasAgg(diagram).get_renderer()
    boxes = {t: t.get_window_extent(draws) for t in diagram.ax.texts} # y from below
    W,H = diagram.width,diagram.height
    wrong = [f'{t.get_text()!r} leaves the picture' for t,b in boxes.items()
             if min(b.x0, b.y0) < 0 or b.x1 > W or b.y1 > H]
    for i,(t,a) in enumerate(boxes.items()):
        for s,b in [*boxes.items()][:i]:
            apart = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
            if not apart: wrong.append(f'{t.get_text()!r} lies on {s.get_text()!r}')
    for place,t in diagram.boxes:
        if min(place[:2]) < 1 or place.right[0] > W - 1 or place.bottom[1] > H - 1:
            wrong.append(f'a box leaves the picture at ({place.x:g}, {place.y:g})')
        if t and (boxes[t].width > place.w - 4 or boxes[t].height > place.h - 2):
            wrong.append(f'{t.get_text()!r} does not fit into its box')
    return wrong

def frames(
    d:Diagram,
    x:float, # px, the upper left corner
    y:float,
    w:float, # px, one frame
    h:float,
    clip:Any=None, # (T, H, W, 3) uint8, array or tensor; None = empty frames
    words:str='', # below
    count:int=3, # frames that are shown, evenly spread over the clip, 5 px apart
)->Spot: # of the whole stack
    "A clip as a stack of frames, the first in front."
    film = None if clip is None else _array(clip)
    if film is not None and (film.ndim != 4 or film.shape[3] != 3 or film.dtype != np.uint8):
        raise ValueError(f'frames: a clip is (T, H, W, 3) uint8, not {film.shape} {film.dtype}')
    for i in reversed(range(count)):
        left,top = x + 5*i,y + 5*(count - 1 - i)
        at = 0 if film is None else round(i*(len(film) - 1)/max(count - 1, 1))
        picture = np.full((1, 1, 3), 255) if film is None else film[at]
        d.ax.imshow(picture, extent=(left, left + w, top + h, top), aspect='auto', zorder=3 - i/10)
        d.ax.add_patch(Rectangle((left, top), w, h, fc='none', ec=INK, lw=1, zorder=3.05 - i/10))
    place = Spot(x, y, w + 5*(count - 1), h + 5*(count - 1))
    if words: write_text(d, place.bottom[0], y + place.h + 10, words)
    return place

def draw_matrix(
    d:Diagram,
    x:float, # px, the upper left corner
    y:float,
    values:Any, # (R, C) numbers
    positive:Any=None, # (R, C) boolean: these have a green border
    cell:float=18, # px
)->Spot:
    "Cells shaded by their numbers (blue, red below 0), the positives with a green border."
    table = _array(values).astype(float)
    place = Spot(x, y, cell*table.shape[1], cell*table.shape[0])
    extent = (x, x + place.w, y + place.h, y)
    low,far = float(table.min()),float(np.abs(table).max())/.8 # .8: never so dark that a border drowns
    look:dict = dict(cmap='Blues', vmin=low, vmax=max(low + (table.max() - low)/.8, low + 1e-9))
    if low < 0: look = dict(cmap='RdBu', vmin=-far, vmax=far)
    d.ax.imshow(table, extent=extent, aspect='auto', zorder=3, **look)
    marks = np.zeros(table.shape, bool) if positive is None else _array(positive).astype(bool)
    for (r,c),mark in np.ndenumerate(marks):
        edge:dict = dict(ec=POSITIVE, lw=2.4, zorder=3.2) if mark else dict(ec='#888888', lw=.6, zorder=3.1)
        d.ax.add_patch(Rectangle((x + cell*c, y + cell*r), cell, cell, fc='none', **edge))
    return place

def queue(
    d:Diagram,
    x:float, # px, the upper left corner
    y:float,
    values:Any, # (K,) numbers that shade the keys
    positive:Any=None, # (K,) boolean: these have a green border
    cell:float=18, # px
)->Spot: # of the cells
    "A row of remembered keys: new ones enter on the left, the oldest leave on the right."
    marked = None if positive is None else _array(positive)[None]
    place = draw_matrix(d, x, y, _array(values)[None], marked, cell)
    arrow(d, place.right, (place.right[0] + 18, place.right[1]))
    write_text(d, place.right[0] + 22, place.right[1], 'oldest\nout', 'left')
    return place

def _cross(x, y, side): # the points of two strokes in a square
    near,far = .2*side,.8*side
    return [x + near, x + far, np.nan, x + near, x + far],[y + near, y + far, np.nan, y + far, y + near]

def legend(
    d:Diagram,
    x:float, # px, the left end
    y:float, # px, the middle of the line
    positives:bool=True, # say what the green border means
    fixed:bool=True, # say what does not learn, and where no gradient flows
    self_out:bool=False, # say that the other cells of a matrix are negatives, the crossed ones no candidates
):
    "What the colours, the crosses and the dashed arrow mean, in one line."
    meaning:dict = {'learns': dict(fc=LEARNS, ec=INK, lw=1), 'does not learn': dict(fc=FIXED, ec=INK, lw=1),
                    'no gradient': None, 'positive': dict(fc='white', ec=POSITIVE, lw=2.4)}
    if not positives: meaning.pop('positive')
    if not fixed: meaning = {k: v for k,v in meaning.items() if k in ('learns', 'positive')}
    thin = dict(fc='white', ec='#888888', lw=.6)
    if self_out: meaning |= {'negative': thin, 'itself: left out': thin}
    for words,look in meaning.items():
        if look: d.ax.add_patch(Rectangle((x, y - 6), 16, 12, **look))
        else: arrow(d, (x - 8, y), (x + 18, y), dashed=True)
        last = x + 2,y - 6
        said = write_text(d, x + 22, y, words, 'left')
        x += 22 + said.get_window_extent().width + 26
    if self_out: d.ax.plot(*_cross(*last, 12), color=INK, lw=.9, zorder=4)

def infonce(
    query:Any=None, # a clip to draw: (T, H, W, 3) uint8
    key:Any=None, # another clip of the same video
    sim:Any=None, # (B, B) similarities of queries (rows) and keys (columns), B <= 8; None = a diagonal
)->Diagram:
    "Two clips, encoder, projection, similarity matrix: InfoNCE within a batch."
    table = np.eye(5) if sim is None else _array(sim)
    B = len(table)
    if table.shape != (B, B) or not 1 < B <= 8:
        raise ValueError(f'infonce: sim is {table.shape}; give (B, B), B from 2 to 8')
    d = Diagram(560, 238)
    ways = []
    for y,clip,name,short in (14, query, 'query clip', 'q'),(118, key, 'key clip', 'k'):
        stack = frames(d, 8, y, 62, 46, clip, name)
        encoder = box(d, 110, y + 2, 80, 52, 'encoder', True, .14)
        head = box(d, 214, y + 10, 80, 36, 'projection', True)
        vector = box(d, 318, y + 12, 24, 32, short)
        for a,b in (stack, encoder),(encoder, head),(head, vector): arrow(d, a, b)
        ways.append((encoder, vector))
    (upper,q),(lower,k) = ways
    for width,color in (4, INK),(2, 'white'): # a double line: one and the same
        d.ax.plot(*zip(upper.bottom, lower.top), color=color, lw=width, zorder=1)
    write_text(d, 158, (upper.bottom[1] + lower.top[1])/2, 'same weights', 'left')
    place = draw_matrix(d, 420, 24, table, np.eye(B, dtype=bool), 110/B)
    arrow(d, q, (place.x, q.right[1]))
    arrow(d, k, (place.bottom[0], k.right[1]), place)
    write_text(d, place.bottom[0], 12, 'similarities')
    write_text(d, 381, q.right[1] - 10, 'rows')
    write_text(d, 381, k.right[1] - 10, 'columns')
    write_text(d, 470, 184, 'loss of a row: −log of the\nsoftmax at its positive')
    legend(d, 14, 222, fixed=False)
    return d

def simclr(
    query:Any=None, # a clip to draw: (T, H, W, 3) uint8
    key:Any=None, # another clip of the same video
    sim:Any=None, # (2B, 2B) similarities, video by video, B from 2 to 4; None = the positives alone
)->Diagram:
    "Two clips, one encoder in one pass, all clips against all clips: SimCLR."
    table = np.kron(np.eye(3), np.eye(2)[::-1]) if sim is None else _array(sim)
    n = len(table)
    if table.shape != (n, n) or n not in (4, 6, 8):
        raise ValueError(f'simclr: sim is {table.shape}; give (2B, 2B), B from 2 to 4')
    d = Diagram(560, 226)
    encoder = box(d, 118, 60, 84, 66, 'encoder', True, .14)
    for y,clip,name in (8, query, 'a clip'),(104, key, 'another clip'):
        arrow(d, frames(d, 8, y, 62, 46, clip, name), encoder)
    head = box(d, 226, 72, 80, 42, 'projection', True)
    z = box(d, 330, 76, 30, 34, 'z')
    arrow(d, encoder, head), arrow(d, head, z)
    write_text(d, 160, 146, 'one pass of\nall 2B clips')
    place = draw_matrix(d, 420, 22, table*(1 - np.eye(n)), np.kron(np.eye(n//2), np.eye(2)[::-1]), 126/n)
    side = 126/n
    for i in range(n): # nobody is compared with itself
        d.ax.plot(*_cross(place.x + side*i, place.y + side*i, side), color=INK, lw=.9, zorder=4)
    arrow(d, z, (place.x, z.right[1]))
    arrow(d, z, (z.bottom[0], 166), (place.bottom[0], 166), place)
    write_text(d, 390, z.right[1] - 10, 'rows')
    write_text(d, 412, 178, 'columns: the same clips')
    write_text(d, place.bottom[0], 11, 'similarities')
    legend(d, 14, 208, fixed=False, self_out=True)
    return d

def _row(d:Diagram, y:float, clip:Any, name:str, words:str, learns:bool, feature:str)->tuple[Spot,Spot]:
    stack = frames(d, 8, y, 62, 46, clip, name)
    encoder = box(d, 106, y, 104, 56, words, learns, .12)
    vector = box(d, 240, y + 12, 24, 32, feature)
    arrow(d, stack, encoder)
    arrow(d, encoder, vector)
    return encoder,vector

def moco(
    query:Any=None, # a clip to draw: (T, H, W, 3) uint8
    key:Any=None, # another clip of the same video
    sim:Any=None, # (1 + K,) similarities to the own key and to the queue, K <= 9; None = own key only
)->Diagram:
    "Query encoder, momentum encoder, queue: MoCo."
    row = np.eye(10)[0] if sim is None else _array(sim)
    if row.ndim != 1 or not 2 <= len(row) <= 10:
        raise ValueError(f'moco: sim is {row.shape}; give the own key and up to 9 of the queue')
    d = Diagram(560, 226)
    encoder,q = _row(d, 14, query, 'query clip', 'encoder and\nprojection', True, 'q')
    momentum,k = _row(d, 118, key, 'key clip', 'momentum\nencoder', False, 'k')
    arrow(d, encoder, momentum, dashed=True)
    write_text(d, 166, 93, 'momentum\nupdate', 'left')
    shades = draw_matrix(d, 304, 33, row[None], np.arange(len(row))[None] == 0)
    kept = queue(d, 322, 137, np.zeros(len(row) - 1))
    arrow(d, q, shades)
    arrow(d, k, kept, dashed=True)
    arrow(d, (313, 146), (313, 51), dashed=True)
    arrow(d, kept, (kept.top[0], 51), dashed=True)
    write_text(d, 307, 96, 'own key:\npositive', 'right')
    write_text(d, kept.top[0] + 8, 96, 'negatives', 'left')
    write_text(d, shades.bottom[0], 20, 'similarities')
    loss = box(d, shades.right[0] + 22, 28, 46, 28, 'loss')
    arrow(d, shades, loss)
    write_text(d, kept.bottom[0], 168, 'queue of keys')
    legend(d, 14, 208)
    return d

def coclr(
    query:Any=None, # a clip of the view that learns: (T, H, W, 3) uint8
    key:Any=None, # another clip of the same video
    other:Any=None, # the key clip in the other view
    near:Any=(.2, .9, .1, .4, .3, .8, .1, .6, .2), # (K,) similarities in the queue of the other view, K <= 9
    k:int=3, # as many are mined
    views:tuple[str,str]=('RGB', 'flow'), # the one that learns, the one that stands still
)->Diagram:
    "One phase: a view that learns, the frozen encoder of the other, mining in its queue, the loss."
    shade = _array(near).astype(float)
    if shade.ndim != 1 or not 1 <= k <= len(shade) <= 9:
        raise ValueError(f'coclr: k is {k}, near {shade.shape}; give up to 9, and k of at most as many')
    mined = np.isin(np.arange(len(shade)), np.argsort(-shade, kind='stable')[:k])
    d = Diagram(560, 322)
    a,q = _row(d, 10, query, f'{views[0]} query', f'{views[0]}\nencoder', True, 'q')
    b,k1 = _row(d, 110, key, f'{views[0]} key', 'momentum\nencoder', False, 'k')
    _,f = _row(d, 210, other, f'{views[1]} key', f'{views[1]} encoder,\nfrozen', False, 'f')
    arrow(d, a, b, dashed=True)
    write_text(d, 166, 88, 'momentum\nupdate', 'left')
    shades = draw_matrix(d, 304, 29, [[1., *np.zeros(len(shade))]], [[True, *mined]])
    kept,found = queue(d, 322, 129, 0*shade, mined),queue(d, 322, 229, shade, mined)
    arrow(d, q, shades)
    arrow(d, k1, kept)
    arrow(d, f, found)
    arrow(d, (313, 138), (313, 47))
    for x in 331 + 18*np.flatnonzero(mined):
        for top,bottom in (47, 129),(147, 229): arrow(d, (x, bottom), (x, top))
    arrow(d, shades, box(d, shades.right[0] + 22, 24, 46, 28, 'loss'))
    write_text(d, shades.bottom[0], 17, 'similarities')
    for y,words in (110, f'{views[0]} queue'),(182, 'the same\nvideos'),(211, f'{views[1]} queue'):
        write_text(d, 490, y, words, 'left')
    write_text(d, found.bottom[0], 260, f'the {k} nearest are mined')
    legend(d, 14, 304)
    return d

def way_of_a_video(
    clip=None, # (T, H, W, 3) uint8; None = empty frames
    view=None, # the same in another view
)->Diagram:
    "From a file to a number in a table: what each decade of pages does to a video."
    d = Diagram(560, 256)
    file = box(d, 6, 36, 80, 54, 'a file and\nits row in the\nmanifest')
    clips = frames(d, 112, 38, 52, 40, clip, '')
    other = frames(d, 198, 38, 52, 40, view, '')
    for x,w,words in ((108, 68, 'clips, cut\nand coloured'), (194, 68, 'as a view')):
        write_text(d, x + w/2, 110 if '\n' in words else 103, words)
    encoder = box(d, 282, 33, 84, 60, 'encoder', True, .15)
    head = box(d, 392, 43, 70, 40, 'projection', True)
    sims = draw_matrix(d, 484, 27, np.eye(4)*.7 + .2, np.eye(4, dtype=bool))
    write_text(d, sims.x + sims.w/2, 111, 'loss')
    for a,b in zip((file, clips, other, encoder, head), (clips, other, encoder, head, sims)): arrow(d, a, b)
    frozen = box(d, 282, 150, 84, 60, 'the encoder,\nfrozen', False, .15)
    arrow(d, encoder, frozen, dashed=True)
    feature = draw_matrix(d, 395, 172, [[.9, .2, .6, .4]], cell=16)
    write_text(d, feature.x + 32, 200, 'feature')
    asked = box(d, 482, 153, 72, 54, 'retrieval,\nprobe,\na table')
    arrow(d, (other.x + other.w/2, 114), (other.x + other.w/2, 180), frozen)
    arrow(d, frozen, feature)
    arrow(d, feature, asked)
    for x,y,words in ((130, 12, '0x  data'), (372, 12, '1x  parts'), (518, 12, '3x  methods'),
        (346, 234, '2x  learning and measuring'), (506, 234, '4x  experiments')): write_text(d, x, y, words)
    write_text(d, 130, 180, 'test videos: nothing\nis drawn by chance')
    return d
