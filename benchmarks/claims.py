"""Write what the benchmarks of the toy say into the ledger of claims, `results/claims.json`.

    python benchmarks/claims.py --cascade results/cascade-toy.json --iic results/iic-toy.json \
        --moquad results/moquad-toy.json --looking results/looking-toy.json \
        --provico results/provico-toy.json --distances results/distances-toy-*.json

The verdicts follow from the numbers (`vssl_nb.papers.published`). The reasons are below, one for each verdict
that was met; where numbers change a verdict, its sentence says that nobody has looked at it yet."""
import argparse
import json
import statistics
from pathlib import Path

from vssl_nb.papers.published import CLAIMS, LEDGER, holds, ledger_count, ledger_text, read_ledger
from vssl_nb.training.checkpoints import write_whole

STAGES = (1, 3, 5, 7)
COCLR, CPR = 's=1, r=0.6', 's=3, r=0.6'
WHY: dict[tuple[int, bool | None], str] = {
    (1, True): 'InfoNCE tells the videos apart by their looks, which say nothing of their class here; labels '
        'forbid that.',
    (2, True): 'Far beyond halfway: differences of frames have no looks to go by, know the motions before '
        'the frames do, and name the positives.',
    (3, True): 'By eight points over frames and hardly three over motion; on one seed of three motion alone '
        'is ahead.',
    (4, False): 'From InfoNCE frames, which know hardly more than chance, five and seven stages collapse on '
        'two of three seeds: stages that ask the frames keep what they already take for alike. From frames '
        'that CoCLR has taught (second cycle) no run collapses, and three stages are level with one.',
    (5, False): 'A stage that asks the nearly blind frames should cut little: with 0.5 one seed collapses.',
    (6, True): 'By a little, and on one of three seeds not; both stay below IIC without a miner.',
    (7, False): 'It rises to three stages and falls with five and seven where they collapse. In the second '
        'cycle, from frames that CoCLR has taught, it rises from 38 (one stage) to 41, 47 and 47.',
    (8, True): 'The frames learn while they mine, and the cascade asks them too; one stage asks the frozen '
        'differences only.',
    (9, False): 'Of the mined rows about a fifth is right; what the broken clips teach is lost to the rest.',
    (10, False): 'Level: on the toy nine recordings of ten are found either way.',
    (11, False): 'The first own negative is worth 20 to 40 points, and the whole quadruple stays far above '
        'SimCLR. A disturbed positive alone makes the task harder and forbids nothing yet, and N-bar adds '
        'nothing to N here, less than seeds differ.',
    (12, False): 'Mixing another video (RAD inter) is the best of the three by far. A frame of the same '
        'video shows the background that should be forgotten; it is below BE on two seeds of three.',
    (13, False): 'Far above reverse, level with shuffle. The toy moves in circles and to and fro: played '
        'backwards, most of its classes are clips of the class, or of its mirror image.',
    (14, False): 'All within the range of the seeds: of 124 negatives, beta picks one or six.',
    (15, False): 'The appearance task spends its share of a short training (24 epochs) on telling videos by '
        'their looks, which is what the quadruple has to unlearn.',
    (16, True): 'With the appearance task the own negatives stay farther away to the end.',
    (16, False): 'With the appearance task the own negatives end nearer: the looks they share came first.',
    (18, False): 'No map lies on what moves more than its area does, trained or random: each cell of the '
        'tiny network sees most of the clip, and the most that so coarse a map could reach is 15.',
    (19, False): 'Level: beside Eq. 10 a prior of 1e-5 to 1e-3 decides nothing here.',
    (20, False): 'Level: in 64 directions one pair of samples tells nearly all (page 24).',
    (21, False): 'A second clip is worth 14 to 18 points: without it, samples of one clip are the positives. '
        'A batch of 8 in place of 32 costs on two seeds of three, less than they differ.',
    (22, False): 'Few pairs come below the mean distance of a video from itself, half of them rightly. With '
        'a fixed threshold that lets in more, all pairs are mined soon, and everything matches.',
    (23, False): 'The samples scatter alike for all videos, and so add noise to the comparison of means.',
    (24, True): 'By more than seeds differ, on two seeds of three.',
    (25, False): 'It falls. Where Eq. 10 takes the variance of one direction it rises at each level '
        '(page 37).',
    (26, False): 'It falls: noise is more motion than any video has, and here more motion meant less doubt. '
        'Where Eq. 10 takes the variance of one direction it rises at each share of noise (page 37).',
    (27, True): 'By a little. It mines fewer pairs, and is right more often at eight of nine later looks.',
    (27, None): 'Level where mining begins; from the next look on Bhattacharyya is right more often.',
    (27, False): 'Level where mining begins; from the next look on Bhattacharyya is right more often.',
    }


def of_story(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claims 1 to 3: runs on frames that make the same number of steps from the same weights."
    rows = [{(r['name'], r['view']): 100*r['r1'] for r in seed['rows']} for seed in found['seeds']]
    def each(name, view='rgb'): return [r[name, view] for r in rows]
    infonce, uber = each('infonce-toy-rgb-longer'), each('ubernce-toy-rgb')
    frames, motion = each('coclr-toy-rgb-cycle1'), each('coclr-toy-residual-cycle1', 'residual')
    return {1: {'InfoNCE': infonce, 'UberNCE': uber},
        2: {'InfoNCE': infonce, 'CoCLR': frames,
            'halfway to UberNCE': [(a+b)/2 for a, b in zip(infonce, uber)]},
        3: {'frames': frames, 'motion': motion,
            'both streams': each('coclr-toy-rgb-cycle1', 'rgb+residual')}}


def of_cascade(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claims 4, 5, 7, 8 and 10, a list over the seeds for each name."
    rows = [{r['run']: r for r in seed['rows']} for seed in found['seeds']]
    def each(run, get): return [get(r[run]) for r in rows]
    def fifth(row, last): # of the epochs in which something was mined
        pmr = [x for x in row['pmr_by_epoch'] if x is not None]
        n = max(len(pmr)//5, 1)
        return 100*statistics.mean(pmr[-n:] if last else pmr[:n])
    def rise(row): return fifth(row, True) - fifth(row, False)
    return {
        4: {f's={s}': each(f's={s}, r=0.6', lambda r: 100*r['r1']) for s in STAGES},
        5: {f'r={r}': each(f's=3, r={r}', lambda row: 100*row['r1']) for r in (.8, .5)},
        7: {f's={s}': each(f's={s}, r=0.6', lambda r: 100*r['mined']) for s in STAGES},
        8: {'CPR, first epochs': each(CPR, lambda r: fifth(r, False)),
            'CPR, last epochs': each(CPR, lambda r: fifth(r, True)),
            'rise of CoCLR': each(COCLR, rise), 'rise of CPR': each(CPR, rise)},
        10: {'CoCLR': each(COCLR, lambda r: 100*r['of_five']['cmr']),
            'CPR': each(CPR, lambda r: 100*r['of_five']['cmr'])}}


def of_iic(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claims 6 and 9."
    rows = [{r['name']: r for r in seed['rows']} for seed in found['seeds']]
    def each(name): return [100*r[name]['r1']['rgb'] for r in rows]
    return {6: {'fixed k': each('cascade, 5'), 'k grows by cycle': each('cascade, 1 to 5')},
        9: {'IIC': each('iic'), 'IIC+CPR': each('cascade, 1 to 5')}}


FULL, MINED, WARM = '+AD-Intra-Neg', 'alpha 1.5', '20 %' # what several parts of the benchmark share
# claim -> name in its chain -> run of benchmarks/moquad.py
MOQUAD: dict[int, dict[str, str]] = {
    11: {name: name for name in ('SimCLR', '+AD-Pos', '+Intra-Neg', FULL)},
    12: {'BE': 'BE', 'RAD intra': 'RAD intra', 'RAD inter': FULL},
    13: {'shuffle': 'shuffle', 'reverse': 'reverse', 'speed': FULL},
    14: {'no mining': FULL, 'alpha 1.5': MINED, 'alpha 3': 'alpha 3', 'beta 0.05': 'beta 0.05',
        'beta 0.01': MINED},
    15: {'0 %': MINED, '20 %': WARM, '40 %': '40 %', '60 %': '60 %'}}


def of_moquad(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claims 11 to 16: those whose runs are there for every seed. R@1, not a linear probe."
    rows = [{r['run']: r for r in seed['rows']} for seed in found['seeds']]
    def there(names): return all(n in r for r in rows for n in names)
    told = {number: {name: [100*r[run]['r1'] for r in rows] for name, run in names.items()}
        for number, names in MOQUAD.items() if there(names.values())}
    def late(row): # a share of the candidates, 0: the nearest; of the last fifth of the epochs
        ranks = row['rank_n']
        return 100*statistics.mean(ranks[-max(len(ranks)//5, 1):])
    if there((MINED, WARM)):
        told[16] = {'without warm-up': [late(r[MINED]) for r in rows],
            'with warm-up': [late(r[WARM]) for r in rows]}
    return told


def of_looking(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claims 17 (where both groups have classes on every seed) and 18."
    told = {18: {k: [100*s['focus'][k]['on_motion'] for s in found['seeds']] for k in ('SimCLR', 'MoQuad')}}
    if all({'motion', 'appearance'} <= set(s['gain']) for s in found['seeds']):
        told[17] = {f'{k} classes': [100*s['gain'][k] for s in found['seeds']]
            for k in ('appearance', 'motion')}
    return told


PROVICO: dict[int, dict[str, str]] = { # as MOQUAD, of benchmarks/provico.py
    19: {'beta 1e-3': 'beta 1e-3', 'beta 1e-4': 'with mining', 'beta 1e-5': 'beta 1e-5'},
    20: {'K=5': 'K=5', 'K=10': 'with mining'},
    21: {'N=1': 'N=1', 'N=2': 'with mining', 'small batch': 'small batch', 'large batch': 'with mining'},
    22: {'without mining': 'without mining', 'with mining': 'with mining'}}


def of_provico(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claims 19 to 26: those whose runs are there for every seed."
    rows = [{r['run']: r for r in seed['rows']} for seed in found['seeds']]
    told = {number: {name: [100*r[run]['r1'] for r in rows] for name, run in names.items()}
        for number, names in PROVICO.items() if all(run in r for r in rows for run in names.values())}
    base = [r['with mining'] for r in rows]
    def masked(r): return statistics.mean(v for share, v in r['masked'].items() if float(share) > 0)
    return told | {
        23: {'cosine': [100*r['cosine'] for r in base], 'match probability': [100*r['match'] for r in base]},
        24: {'most uncertain': [100*r['bins'][-1] for r in base],
            'most certain': [100*r['bins'][0] for r in base]},
        25: {'one video': [r['mixed']['1'] for r in base],
            'two videos mixed': [r['mixed']['2'] for r in base]},
        26: {'whole': [r['masked']['0.0'] for r in base], 'masked': [masked(r) for r in base]}}


def of_distances(found: dict) -> dict[int, dict[str, list[float]]]:
    "Numbers of claim 27: at the first look after mining has begun, .15 of the epochs in `distances.py`."
    def early(told, name):
        return 100*next(r['precision'] or 0 for r in told['curves']
            if r['distance'] == name.lower() and r['epoch'] >= .15*told['epochs'])
    return {27: {name: [early(s, name) for s in found['seeds']] for name in ('Euclidean', 'Bhattacharyya')}}


def keep_claim(number: int, numbers: dict[str, list[float]], seeds: list[int], how: str, why: str,
        measured: dict, path: Path = LEDGER) -> dict:
    "Write one row into the ledger, in the place of an older one. ValueError where it does not fit the claim."
    claim = CLAIMS[number]
    if any(len(x)!=len(seeds) for x in numbers.values()):
        raise ValueError(f'claim {number}: {len(seeds)} seeds, another count of numbers; give one for each')
    row = {'number': number, 'source': f'{claim.paper}, {claim.where}', 'what': claim.what,
        'chain': claim.chain, 'held': holds(claim, numbers), 'why': why, 'how': how, 'seeds': [*seeds],
        'numbers': {k: [*v] for k, v in numbers.items()}, 'measured': dict(measured)}
    rows = (read_ledger(path) if path.exists() else {}) | {number: row}
    text = json.dumps([rows[n] for n in sorted(rows)], indent=1, ensure_ascii=False) + '\n'
    write_whole(path, lambda f: f.write(text.encode()))
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--story', type=Path, help='what benchmarks/story.py wrote')
    p.add_argument('--cascade', type=Path, help='what benchmarks/cascade.py wrote')
    p.add_argument('--iic', type=Path, help='what benchmarks/iic.py wrote')
    p.add_argument('--moquad', type=Path, help='what benchmarks/moquad.py wrote')
    p.add_argument('--looking', type=Path, help='what benchmarks/looking.py wrote')
    p.add_argument('--provico', type=Path, help='what benchmarks/provico.py wrote')
    p.add_argument('--distances', type=Path, nargs='+',
        help='what benchmarks/distances.py wrote, seed by seed')
    p.add_argument('--out', type=Path, default=LEDGER)
    a = p.parse_args()
    kept = []
    for file, numbers_of in ((a.story, of_story), (a.cascade, of_cascade), (a.iic, of_iic),
            (a.moquad, of_moquad), (a.looking, of_looking), (a.provico, of_provico),
            (a.distances, of_distances)):
        if not file: continue
        files = file if isinstance(file, list) else [file]
        found, *more = (json.loads(f.read_text()) for f in files)
        if file is a.distances: found = found | {'seeds': [found, *more]}
        for number, numbers in numbers_of(found).items():
            verdict = holds(CLAIMS[number], numbers)
            why = WHY.get((number, verdict), 'Nobody has looked at this verdict yet.')
            keep_claim(number, {k: [round(x, 3) for x in v] for k, v in numbers.items()},
                [s['seed'] for s in found['seeds']],
                f"{found['what']} on the toy videos, {', '.join(f'results/{f.name}' for f in files)}", why,
                {'machine': found['machine'], 'date': found['date']}, a.out)
            kept.append(number)
    print(ledger_text(a.out, sorted(kept)), ledger_count(a.out), sep='\n\n')


if __name__ == '__main__': main()
