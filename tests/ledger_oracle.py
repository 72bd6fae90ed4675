"""The verdicts of a ledger once more, from the rule in words: DESIGN, section 8, and the numbers
in the docstring of `vssl_nb/papers/verdicts.py`. Slow loops, the standard library, no import of
what it checks. Prints JSON: name of a line -> words, bounds and links.

    python tests/ledger_oracle.py results/claims.json
"""

import csv
import itertools
import json
import math
import sys
from pathlib import Path

PAPERS = Path(__file__).parent.parent / "vssl_nb" / "papers"


def lines_of(name):
    with (PAPERS / name).open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def flips(d):
    "p of the mean: all choices of signs."
    here, as_far, count = abs(sum(d)), 0, 0
    for signs in itertools.product((1, -1), repeat=len(d)):
        count += 1
        as_far += abs(sum(s * x for s, x in zip(signs, d))) >= here - 1e-9
    return as_far / count


def flips_interval(d):
    "Means of all subsets, as many cut off at either end as 2.5 % of all choices of signs."
    means = []
    for size in range(1, len(d) + 1):
        means += [sum(some) / size for some in itertools.combinations(d, size)]
    means.sort()
    cut = math.floor(0.025 * 2 ** len(d) + 1e-9)
    return (means[cut - 1], means[-cut]) if cut else (-math.inf, math.inf)


def binomial_tail(most, n):
    return sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n


def signs(d):
    "p of the median: on which side are the seeds?"
    up, down = sum(x > 0 for x in d), sum(x < 0 for x in d)
    return min(1.0, 2 * binomial_tail(max(up, down), up + down))


def signs_interval(d):
    "From the k-th smallest to the k-th largest, k as large as 95 % allow."
    values, n = sorted(d), len(d)
    k = 0
    while 2 * binomial_tail(n - k, n) <= 0.05:
        k += 1
    return (values[k - 1], values[-k]) if k else (-math.inf, math.inf)


def has_failed_and_learned(arm):
    "Some seeds are not above the untrained encoder, and others have at least twice its R@1."
    pairs = list(zip(arm["r1"], arm["untrained"]))
    return any(x <= u for x, u in pairs) and any(x >= 2 * u for x, u in pairs)


def has_learned(arm):
    return flips_interval([x - u for x, u in zip(arm["r1"], arm["untrained"])])[0] > 0


def stepwise(ps):
    "Holm: the smallest times their number, the next times one less; never below the one before."
    adjusted, before = {}, 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        before = max(before, min(1.0, ps[place] * (len(ps) - rank)))
        adjusted[place] = before
    return [adjusted[i] for i in range(len(ps))]


def false_discoveries(ps):
    "Benjamini and Hochberg: the least of p times their number over the rank, from there upwards."
    ranked = sorted(ps)
    return [
        min(1.0, min(q * len(ps) / (i + 1) for i, q in enumerate(ranked) if q >= p)) for p in ps
    ]


def word_of(links):
    "links: (p that decides, mean or median, low, high)."
    if any(p <= 0.05 and middle < 0 for p, middle, _, _ in links):
        return "fails", None
    open_ = [max(abs(low), abs(high)) for p, _, low, high in links if p > 0.05]
    if open_:
        return "no difference above", max(open_)
    return "holds", None


def gates(reading, links, line):
    "The word of the first gate that is shut; '' where all are open."
    names = [name for link in links for name in link]
    if any(name not in line["arms"] for name in names) or len(line["seeds"]) < 6:
        return "not run"
    if line["premise"] is not None:
        least, most = float(reading["least"] or "-inf"), float(reading["most"] or "inf")
        met = sum(least <= x <= most for x in line["premise"])
        if met / len(line["premise"]) < 0.75:
            return "premise not met"
    arms = [line["arms"][name] for name in names]
    measured = [arm for arm in arms if arm["r1"] and arm["untrained"]]
    if measured and not any(map(has_learned, measured)):
        return "nothing was learned"
    return ""


def links_of(pairs, line):
    "p alone, mean or median, low, high of each link."
    links = []
    for a, b in pairs:
        x, y = line["arms"][a], line["arms"][b]
        d = [high - low for low, high in zip(x["values"], y["values"])]
        if has_failed_and_learned(x) or has_failed_and_learned(y):
            values, n = sorted(d), len(d)
            median = (values[n // 2] + values[(n - 1) // 2]) / 2
            links.append((signs(d), median, *signs_interval(d)))
        else:
            links.append((flips(d), sum(d) / len(d), *flips_interval(d)))
    return links


def main(file):
    lines = json.loads(Path(file).read_text(encoding="utf-8"))["lines"]
    chains = {line["number"]: line["chain"] for line in lines_of("claims.csv")}
    answer, judged = {}, []
    for reading in lines_of("readings.csv"):
        name = f"{reading['number']}, {reading['reading']}, {reading['world']}"
        line = lines[name]
        pairs = []
        for part in (reading["chain"] or chains[reading["number"]]).split("; "):
            names = part.split(" < ")
            pairs += [(names[i], names[i + 1]) for i in range(len(names) - 1)]
        shut = gates(reading, pairs, line)
        raw = [] if shut == "not run" else links_of(pairs, line)
        within = stepwise([p for p, *_ in raw])
        links = [(p, low, high) for p, (_, _, low, high) in zip(within, raw)]
        word, bound = (shut, None) if shut else word_of([(p, *x[1:]) for p, x in zip(within, raw)])
        answer[name] = {"words": [word, word], "bounds": [bound, bound], "links": links}
        if not shut:
            judged.append((name, within, raw))

    over_all = iter(false_discoveries([x[0] for _, _, raw in judged for x in raw]))
    for name, within, raw in judged:
        word, bound = word_of([(max(p, next(over_all)), *x[1:]) for p, x in zip(within, raw)])
        answer[name]["words"][1], answer[name]["bounds"][1] = word, bound
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
