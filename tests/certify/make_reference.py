#!/usr/bin/env python3
"""Reference values of the bounds to 50 digits: writes tests/data/bounds/reference.json.

Needs mpmath (python3 -m venv v && v/bin/pip install mpmath && v/bin/python tests/certify/make_reference.py).
Nothing here follows the C++: F and G are found by golden section on the definition, TV* by trying every set with every
fraction, all with 70 digits of working precision.
"""
import itertools
import json
import pathlib
import random

from mpmath import mp, mpf

mp.dps = 70


def box(a, c, sigma):
    """max over X in (0, 1] of 1/(1+X) - 1/(1+W); f rises, then falls."""
    if a <= 1:
        return mpf(0)
    e = mp.exp(c)

    def f(log_x):
        x = mp.exp(log_x)
        h = min(x * e, a * (1 + x) - 1, a * (1 + x) / 2)
        if sigma is not None:
            h = min(h, x * a + sigma * mp.sqrt(x))
        w = h * (a * (1 + x) - h)
        return 1 / (1 + x) - 1 / (1 + w)

    low, high = -c - mp.log(a / (a - 1)) - 20, mpf(0)
    g = (mp.sqrt(5) - 1) / 2
    p, q = high - g * (high - low), low + g * (high - low)
    fp, fq = f(p), f(q)
    while high - low > mpf(10) ** -62:
        if fp < fq:
            low, p, fp = p, q, fq
            q = low + g * (high - low)
            fq = f(q)
        else:
            high, q, fq = q, p, fp
            p = high - g * (high - low)
            fp = f(p)
    return max(fp, fq, f(mpf(0)), mpf(0))


def worst_case(mass, radius):
    """Every set, every element outside it taken in the best fraction."""
    n = len(mass)
    best = mpf(0)
    for size in range(n + 1):
        for chosen in itertools.combinations(range(n), size):
            u = sum((mass[i] * mp.exp(radius[i]) for i in chosen), mpf(0))
            p = sum((mass[i] for i in chosen), mpf(0))
            v = sum((mass[i] * mp.exp(-radius[i]) for i in range(n) if i not in chosen), mpf(0))
            best = max(best, u / (u + v) - p)
            for j in set(range(n)) - set(chosen):
                a, b = mass[j] * mp.exp(radius[j]), mass[j] * mp.exp(-radius[j])
                if a == b:
                    continue
                x = (mp.sqrt((a * v + b * u) / mass[j]) - u - v) / (a - b)
                if 0 < x < 1:
                    best = max(best, (u + x * a) / (u + v + x * (a - b)) - p - x * mass[j])
    return best


def text(x):
    return mp.nstr(x, 50)


def exact(x):
    """A double as mpf and as the text that names it exactly."""
    return mpf(x), repr(float(x))


def box_cases(rng):
    cases = []
    for _ in range(160):
        c = 10 ** rng.uniform(-4, 1.55)
        growth = float(mp.expm1(c))
        b1 = growth * 10 ** (-5 * rng.random() ** 2)
        largest = float(mp.sqrt((growth - b1) * b1)) if growth > b1 else 0.0
        sigma = None if rng.random() < 0.3 else largest * 10 ** (-3 * rng.random())
        cases.append((b1, c, sigma))
    return cases


def write_box(rng):
    out = []
    for b1, c, sigma in box_cases(rng):
        (mb, tb), (mc, tc) = exact(b1), exact(c)
        a = 1 + mb
        entry = {"b1": tb, "c": tc, "value": text(box(a, mc, None if sigma is None else mpf(sigma)))}
        if sigma is not None:
            entry["sigma"] = repr(sigma)
        entry["e_form"] = text((a * a - 1) / 2)
        entry["one_minus_inverse"] = text(1 - 1 / a if a <= 2 else a * a / (a * a + 4))
        entry["tanh_half"] = text(mp.tanh(mc / 2))
        entry["tanh_full"] = text(mp.tanh(mc))
        out.append(entry)
    return out


def write_worst(rng):
    out = []
    for _ in range(120):
        n = rng.randint(1, 6)
        mass = [rng.random() ** rng.choice([1, 8]) + 1e-9 for _ in range(n)]
        radius = [10 ** rng.uniform(-4, 1) if rng.random() < 0.8 else 0.0 for _ in range(n)]
        if rng.random() < 0.2:
            radius = [radius[0]] * n
        total = sum(mpf(m) for m in mass)
        value = worst_case([mpf(m) / total for m in mass], [mpf(c) for c in radius])
        weights = [mpf(m) / total for m in mass]
        a = sum(w * mp.exp(c) for w, c in zip(weights, radius))
        low = sum(w * mp.exp(-mpf(c)) for w, c in zip(weights, radius))
        out.append({"mass": [repr(m) for m in mass], "radius": [repr(c) for c in radius], "value": text(value),
                    "two_sided": text((a / low - low / a) / 2)})
    return out


def main():
    rng = random.Random(20240611)
    path = pathlib.Path(__file__).resolve().parent.parent / "data" / "bounds" / "reference.json"
    path.write_text(json.dumps({"box": write_box(rng), "worst": write_worst(rng)}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
