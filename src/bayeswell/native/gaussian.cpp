// Independent Gaussian weights: noise and draws, divergences, variances, weighted squares, and their slopes.

#include "gaussian.h"

Runtime runtime = {nullptr, nullptr, nullptr};

namespace {

void normals(uint64_t key, float* out, int64_t first, int64_t last) {
    for (int64_t at = first; at < last; at += BLOCK) {
        if (at + BLOCK <= last) {
            normal_block(key, at / BLOCK, out + at);
        } else {
            float rest[BLOCK];
            normal_block(key, at / BLOCK, rest);
            std::memcpy(out + at, rest, (last - at) * sizeof(float));
        }
    }
}

// Kernels of convolutions within a vector of weights, in its order: `filters` matrices of (channels, positions), one behind
// the other from `place` on, which are to be written as (positions, channels).
struct Kernel {
    int64_t place, filters, channels, positions;

    int64_t end() const { return place + filters * channels * positions; }
};

constexpr int64_t TURNED = 8;  // channels whose positions are read as they lie and written as pieces of rows

// Channels [low, high) of one filter, (channels, positions) to (positions, channels). Whole rows one after another would be
// gathered from all over the filter, which some processors do number by number. Positions are known when it is compiled,
// or else (0) when it runs.
template <int known>
void turn(const float* filter, float* out, int64_t channels, int64_t positions, int64_t low, int64_t high) {
    const int64_t width = known ? known : positions;
    int64_t c = low;
    for (; c + TURNED <= high; c += TURNED)
        for (int64_t p = 0; p < width; ++p) {
            float piece[TURNED];
            for (int64_t i = 0; i < TURNED; ++i) piece[i] = filter[(c + i) * width + p];
            std::memcpy(out + p * channels + c, piece, sizeof(piece));
        }
    for (; c < high; ++c)
        for (int64_t p = 0; p < width; ++p) out[p * channels + c] = filter[c * width + p];
}

#ifdef __AVX512F__
constexpr int64_t LINE = 16;  // channels of one position that fill a line of the caches, and a register

ALWAYS __m512 fourth_channels(const float* at) {
    const __m512 one = _mm512_castps128_ps512(_mm_loadu_ps(at));
    const __m512 two = _mm512_insertf32x4(one, _mm_loadu_ps(at + 4 * 9), 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(two, _mm_loadu_ps(at + 8 * 9), 2), _mm_loadu_ps(at + 12 * 9), 3);
}

// 16 channels of 9 positions: four squares of 4 x 4 beside each other are turned at a time. The third time the positions
// from 5 on are read, of which all but the last were there before: nothing behind the filter is read.
template <bool around>
ALWAYS void turn_line(const float* filter, float* out, int64_t channels) {
    const auto put = [=](int64_t p, __m512d line) {
        const __m512 values = _mm512_castpd_ps(line);
        around ? _mm512_stream_ps(out + p * channels, values) : _mm512_storeu_ps(out + p * channels, values);
    };
    for (int64_t p = 0; p < 9; p += p == 4 ? 1 : 4) {
        const __m512 a = fourth_channels(filter + p), b = fourth_channels(filter + p + 9);
        const __m512 c = fourth_channels(filter + p + 18), d = fourth_channels(filter + p + 27);
        const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)), cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
        const __m512d later_ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        const __m512d later_cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
        if (p < 5) {
            put(p, _mm512_unpacklo_pd(ab, cd));
            put(p + 1, _mm512_unpackhi_pd(ab, cd));
            put(p + 2, _mm512_unpacklo_pd(later_ab, later_cd));
        }
        put(p + 3, _mm512_unpackhi_pd(later_ab, later_cd));
    }
}

// As many of the channels from low on as fill lines; the first one that is left.
ALWAYS int64_t turn_lines(const float* filter, float* out, int64_t channels, int64_t low, int64_t high, bool around) {
    const bool whole = around && reinterpret_cast<uintptr_t>(out) % 64 == 0 && channels % LINE == 0;
    int64_t c = low;
    if (whole) {  // lines begin at every 16th channel
        const int64_t begin = (low + LINE - 1) / LINE * LINE;
        if (begin + LINE > high) return low;
        turn<9>(filter, out, channels, 9, low, begin);
        for (c = begin; c + LINE <= high; c += LINE) turn_line<true>(filter + c * 9, out + c, channels);
    } else {
        for (; c + LINE <= high; c += LINE) turn_line<false>(filter + c * 9, out + c, channels);
    }
    return c;
}
#endif

// Weights [from, to) of one filter; the first and the last channel may be there in part.
void turn_filter(const Kernel& own, const float* filter, float* out, int64_t from, int64_t to, bool around) {
    const int64_t positions = own.positions, high = to / positions;
    int64_t low = (from + positions - 1) / positions;
    auto one = [&](int64_t i) { out[i % positions * own.channels + i / positions] = filter[i]; };
    if (high < low) {  // a part of one channel
        for (int64_t i = from; i < to; ++i) one(i);
        return;
    }
    for (int64_t i = from; i < low * positions; ++i) one(i);
#ifdef __AVX512F__
    if (positions == 9) low = turn_lines(filter, out, own.channels, low, high, around);
#endif
    (positions == 9 ? turn<9> : turn<0>)(filter, out, own.channels, positions, low, high);
    for (int64_t i = high * positions; i < to; ++i) one(i);
}

// The weights from first to last: those of kernels with channels last, the others where they are.
void lay_out(const Kernel* kernels, int64_t count, const float* drawn, float* weights, bool around, int64_t first,
             int64_t last) {
    int64_t at = first;
    auto copy_until = [&](int64_t stop) {
        if (stop > at) std::memcpy(weights + at, drawn + at, (stop - at) * sizeof(float));
        at = stop > at ? stop : at;
    };
    for (int64_t k = 0; k < count && at < last; ++k) {
        const Kernel& own = kernels[k];
        const int64_t end = own.end() < last ? own.end() : last;
        if (end <= at || own.positions == 1) continue;  // of one position: laid out as it is
        copy_until(own.place < last ? own.place : last);
        const int64_t size = own.channels * own.positions;
        while (at < end) {  // filter by filter, of which a chunk may have the end or the beginning alone
            const int64_t filter = own.place + (at - own.place) / size * size;
            const int64_t stop = filter + size < end ? filter + size : end;
            turn_filter(own, drawn + filter, weights + filter, at - filter, stop - filter, around);
            at = stop;
        }
    }
    copy_until(last);
}

// One block of one draw, at its place in a row, or in `noise` itself.
template <int form>
ALWAYS void draw_block(uint64_t key, const float* mean, const float* state, float* noise, float* drawn, int64_t at,
                       int64_t stop) {
    normal_block(key, at / BLOCK, noise);
#pragma omp simd
    for (int64_t i = at; i < stop; ++i) drawn[i] = mean[i] + std_of<form>(state[i]) * noise[i - at];
}

// One chunk of several draws, each with a key of its own and `stride` behind the one before: means and stds come from the
// nearest cache for all but the first.
template <int form>
void fresh_draws(const uint64_t* keys, int64_t draws, const float* mean, const float* state, float* weights,
                 int64_t stride, bool around, int64_t first, int64_t last) {
    FOR_BLOCKS
        for (int64_t draw = 0; draw < draws; ++draw) {
            float noise[BLOCK];
            float* row = weights + draw * stride;
            draw_block<form>(keys[draw], mean, state, noise, around ? noise - at : row, at, stop);
            if (around) write_around(row + at, noise, stop - at);
        }
    }
    if (around) end_writing_around();
}

bool is_among(const Kernel* kernels, int64_t count, int64_t first, int64_t last) {
    for (int64_t k = 0; k < count; ++k)
        if (kernels[k].positions > 1 && kernels[k].place < last && first < kernels[k].end()) return true;
    return false;
}

// The same with kernels laid out, from `fresh`, which the near caches hold.
template <int form>
void laid_out_draws(const uint64_t* keys, int64_t draws, const float* mean, const float* state, float* weights,
                    int64_t stride, bool around, const Kernel* kernels, int64_t count, int64_t first, int64_t last) {
    if (!is_among(kernels, count, first, last))
        return fresh_draws<form>(keys, draws, mean, state, weights, stride, around, first, last);
    float fresh[CHUNK], noise[BLOCK];
    for (int64_t draw = 0; draw < draws; ++draw) {
        FOR_BLOCKS
            draw_block<form>(keys[draw], mean, state, noise, fresh - first, at, stop);
        }
        lay_out(kernels, count, fresh - first, weights + draw * stride, around, first, last);
    }
    if (around) end_writing_around();
}

template <int form>
void variance(const float* state, float* out, int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float s = std_of<form>(state[i]);
        out[i] = s * s;
    }
}

template <int form>
void variance_slope(const float* of_variance, const float* state, float* out, int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float s = std_of<form>(state[i]);
        out[i] = 2.0f * of_variance[i] * s * slope_of<form>(s);
    }
}

double half_squares(const float* mean, const float* h, int64_t stride, int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float part = 0;
        const float common = h[0];
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) part += (stride ? h[i] : common) * mean[i] * mean[i];
        total += part;
    }
    return 0.5 * total;
}

void half_squares_slope(const float* mean, const float* h, int64_t stride, const float* of_weights, float of_sum,
                        float* of_mean, int64_t first, int64_t last) {
    const float common = h[0];
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float flow = of_sum * (stride ? h[i] : common) * mean[i];
        of_mean[i] = of_weights ? of_weights[i] + flow : flow;
    }
}

template <int form>
double weighted_squares(const float* state, const float* values, int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) {
            const float product = std_of<form>(state[i]) * values[i];
            part += product * product;
        }
        total += part;
    }
    return total;
}

template <int form>
void weighted_squares_slopes(const float* state, const float* values, float of_sum, float* of_state, float* of_values,
                             int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float s = std_of<form>(state[i]), v = values[i], flow = 2.0f * of_sum * s * v;
        of_state[i] = flow * v * slope_of<form>(s);
        of_values[i] = flow * s;
    }
}

}  // namespace

extern "C" {

void bayeswell_use_threads(void* parallel, void* thread, void* threads) {
    runtime.thread = reinterpret_cast<int (*)()>(thread);
    runtime.threads = reinterpret_cast<int (*)()>(threads);
    runtime.parallel = reinterpret_cast<void (*)(void (*)(void*), void*, unsigned, unsigned)>(parallel);
}

uint32_t bayeswell_version() { return SOURCES; }  // a checksum of all sources, given by whoever compiles them

void bayeswell_normals(uint64_t key, float* out, int64_t n, int threads) {
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) { normals(key, out, first, last); });
}

// Whether kernels lie in n weights one behind the other: nothing outside of them is written then.
int bayeswell_kernels_fit(const int64_t* table, int64_t count, int64_t n, int) {
    int64_t end = 0;
    for (int64_t k = 0; k < count; ++k) {
        const int64_t *row = table + 4 * k, left = n - row[0];
        if (row[0] < end || left < 0 || row[1] < 1 || row[2] < 1 || row[3] < 1) return 0;
        // By divisions: products of what is not true may be too large for a number.
        if (row[1] > left || row[2] > left / row[1] || row[3] > left / row[1] / row[2]) return 0;
        end = row[0] + row[1] * row[2] * row[3];
    }
    return 1;
}

void bayeswell_fresh_draws(int form, const uint64_t* keys, int64_t draws, const float* mean, const float* state,
                           float* weights, int64_t stride, const int64_t* table, int64_t count, int64_t n, int threads) {
    const bool around = goes_around(weights, stride, draws * n);
    if (count) {
        auto work = form == FROM_LOG_STD ? laid_out_draws<FROM_LOG_STD> : laid_out_draws<AS_IT_IS>;
        const Kernel* kernels = reinterpret_cast<const Kernel*>(table);
        in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
            work(keys, draws, mean, state, weights, stride, around, kernels, count, first, last);
        });
    } else {
        auto work = form == FROM_LOG_STD ? fresh_draws<FROM_LOG_STD> : fresh_draws<AS_IT_IS>;
        in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
            work(keys, draws, mean, state, weights, stride, around, first, last);
        });
    }
}

double bayeswell_draw_and_kl(int form, const float* mean, const float* state, const float* given, int keyed, uint64_t key,
                             const float* precisions, const int64_t* ends, int64_t runs, float* weights, int64_t n,
                             int threads) {
    auto work = form == FROM_LOG_STD ? draw_and_kl<FROM_LOG_STD> : draw_and_kl<AS_IT_IS>;
    const Precision precision{precisions, ends, runs};
    const Noise all{given, keyed != 0, key};
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) {
        NoiseParts fresh(all);
        const float* noise = fresh.part(first, last);
        return over_runs(precision, first, last, [=](const float* h, int64_t stride, int64_t from, int64_t to) {
            return work(mean, state, noise, h, stride, weights, from, to);
        });
    });
}

// `of_mean` may be the memory of `of_weights`.
void bayeswell_slopes(int form, const float* mean, const float* state, const float* given, int keyed, uint64_t key,
                      const float* precisions, const int64_t* ends, int64_t runs, const float* of_weights,
                      const float* of_kl, float* of_mean, float* of_state, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? slopes_for<FROM_LOG_STD>(of_weights, of_kl) : slopes_for<AS_IT_IS>(of_weights, of_kl);
    const Precision precision{precisions, ends, runs};
    const Noise all{given, keyed != 0, key};
    const float c = of_kl ? *of_kl : 0.0f;
    in_chunks(n, threads, [=](int64_t, int64_t begin, int64_t end) {
        NoiseParts fresh(all);
        const float* noise = fresh.part(begin, end);
        over_runs(precision, begin, end, [=](const float* h, int64_t stride, int64_t from, int64_t to) {
            work(mean, state, noise, h, stride, of_weights, c, of_mean, of_state, from, to);
            return 0.0;
        });
    });
}

double bayeswell_half_squares(const float* mean, const float* precisions, const int64_t* ends, int64_t runs, int64_t n,
                              int threads) {
    const Precision precision{precisions, ends, runs};
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) {
        return over_runs(precision, first, last, [=](const float* h, int64_t stride, int64_t from, int64_t to) {
            return half_squares(mean, h, stride, from, to);
        });
    });
}

void bayeswell_half_squares_slope(const float* mean, const float* precisions, const int64_t* ends, int64_t runs,
                                  const float* of_weights, const float* of_sum, float* of_mean, int64_t n, int threads) {
    const Precision precision{precisions, ends, runs};
    const float c = *of_sum;
    in_chunks(n, threads, [=](int64_t, int64_t begin, int64_t end) {
        over_runs(precision, begin, end, [=](const float* h, int64_t stride, int64_t from, int64_t to) {
            half_squares_slope(mean, h, stride, of_weights, c, of_mean, from, to);
            return 0.0;
        });
    });
}

void bayeswell_variance(int form, const float* state, float* out, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? variance<FROM_LOG_STD> : variance<AS_IT_IS>;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) { work(state, out, first, last); });
}

void bayeswell_variance_slope(int form, const float* of_variance, const float* state, float* out, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? variance_slope<FROM_LOG_STD> : variance_slope<AS_IT_IS>;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) { work(of_variance, state, out, first, last); });
}

double bayeswell_weighted_squares(int form, const float* state, const float* values, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? weighted_squares<FROM_LOG_STD> : weighted_squares<AS_IT_IS>;
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) { return work(state, values, first, last); });
}

void bayeswell_weighted_squares_slopes(int form, const float* state, const float* values, const float* of_sum,
                                       float* of_state, float* of_values, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? weighted_squares_slopes<FROM_LOG_STD> : weighted_squares_slopes<AS_IT_IS>;
    const float c = *of_sum;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        work(state, values, c, of_state, of_values, first, last);
    });
}
}
