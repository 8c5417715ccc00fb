// Independent Gaussian weights, piece by piece: what a std is made of, prior precisions, the draw w = m + s noise with
// the divergence sum [h (m^2 + s^2) / 2 - log s], and their slopes.

#pragma once

#include "common.h"

namespace {

// What a standard deviation is made of.
enum Form { FROM_LOG_STD = 0, AS_IT_IS = 1 };

template <int form>
ALWAYS float std_of(float state) {
    return form == FROM_LOG_STD ? exp_of(state) : state;
}

template <int form>
ALWAYS float log_std_of(float state) {
    return form == FROM_LOG_STD ? state : log_of(state < TINY ? TINY : state);
}

template <int form>
ALWAYS float slope_of(float std) {
    return form == FROM_LOG_STD ? std : 1.0f;
}

template <int form>
ALWAYS float log_slope_of(float state) {
    return form == FROM_LOG_STD ? 1.0f : (state < TINY ? 0.0f : 1.0f / state);
}

// Prior precisions h = 1 / p^2: one for each weight (stride 1), or one for each of `runs` neighbouring stretches of weights,
// the last weight of stretch r being ends[r] - 1: then they take no memory to read.
struct Precision {
    const float* values;
    const int64_t* ends;
    int64_t runs;
};

// work(h, stride, first, last) on pieces of [first, last) that have one h, or on the whole of it.
template <class F>
double over_runs(const Precision& h, int64_t first, int64_t last, F work) {
    if (!h.runs) return work(h.values, int64_t(1), first, last);
    int64_t run = 0;
    while (run < h.runs && h.ends[run] <= first) ++run;
    double total = 0;
    for (; first < last && run < h.runs; ++run) {
        if (h.ends[run] <= first) continue;  // a stretch of nothing; and whatever ends hold, nothing outside is touched
        const int64_t stop = h.ends[run] < last ? h.ends[run] : last;
        total += work(h.values + run, int64_t(0), first, stop);
        first = stop;
    }
    return total;
}

template <int form, bool drawn, bool each>
double draw_and_kl_of(const float* mean, const float* state, const float* noise, const float* inverse_variance,
                      float* weights, int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float part = 0;
        const float common = inverse_variance[0];
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) {
            const float m = mean[i], s = std_of<form>(state[i]), h = each ? inverse_variance[i] : common;
            if (drawn) weights[i] = m + s * noise[i];
            part += 0.5f * h * (m * m + s * s) - log_std_of<form>(state[i]);
        }
        total += part;
    }
    return total;
}

// Cases are templates: a test inside a loop keeps it from being vectorised well.
template <int form>
double draw_and_kl(const float* mean, const float* state, const float* noise, const float* inverse_variance,
                   int64_t stride, float* weights, int64_t first, int64_t last) {
    auto work = noise ? (stride ? draw_and_kl_of<form, true, true> : draw_and_kl_of<form, true, false>)
                      : (stride ? draw_and_kl_of<form, false, true> : draw_and_kl_of<form, false, false>);
    return work(mean, state, noise, inverse_variance, weights, first, last);
}

template <int form, bool drawn, bool divergent, bool each>
void slopes_of(const float* mean, const float* state, const float* noise, const float* inverse_variance,
               const float* of_weights, float of_kl, float* of_mean, float* of_state, int64_t first, int64_t last) {
    const float common = divergent && !each ? inverse_variance[0] : 0.0f;
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float s = std_of<form>(state[i]), g = drawn ? of_weights[i] : 0.0f;
        const float h = divergent ? of_kl * (each ? inverse_variance[i] : common) : 0.0f;
        float of_std = drawn ? g * noise[i] : 0.0f;
        if (divergent) of_std += h * s;
        const float flow = of_std * slope_of<form>(s);
        of_mean[i] = divergent ? g + h * mean[i] : g;
        of_state[i] = divergent ? flow - of_kl * log_slope_of<form>(state[i]) : flow;
    }
}

template <int form, bool drawn, bool divergent>
void slopes(const float* mean, const float* state, const float* noise, const float* inverse_variance, int64_t stride,
            const float* of_weights, float of_kl, float* of_mean, float* of_state, int64_t first, int64_t last) {
    auto work = stride ? slopes_of<form, drawn, divergent, true> : slopes_of<form, drawn, divergent, false>;
    work(mean, state, noise, inverse_variance, of_weights, of_kl, of_mean, of_state, first, last);
}

using Slopes = void (*)(const float*, const float*, const float*, const float*, int64_t, const float*, float, float*,
                        float*, int64_t, int64_t);

template <int form>
Slopes slopes_for(const float* of_weights, const float* of_kl) {
    return !of_weights ? slopes<form, false, true> : of_kl ? slopes<form, true, true> : slopes<form, true, false>;
}

}  // namespace
