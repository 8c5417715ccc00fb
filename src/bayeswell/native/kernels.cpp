// Formulas over whole weight vectors, each as one pass over memory. Eager torch makes one pass for every operation, and
// for half a million weights those passes cost more than the arithmetic.
//
// Plain C functions of float32 arrays, called through ctypes; the same formulas stand in Python next to each call, and
// tests hold the two together. Work is cut into chunks of fixed size, whatever the number of threads, and sums are added
// chunk by chunk: so results do not depend on the number of threads.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define ALWAYS static inline __attribute__((always_inline))

namespace {

constexpr int64_t LANES = 128;        // numbers that a loop over a buffer handles at a time
constexpr int64_t BLOCK = 2 * LANES;  // normals made from LANES counters: cosines first, then sines
constexpr int64_t CHUNK = 64 * BLOCK;
constexpr int64_t SERIAL = 2 * CHUNK;  // below this starting threads takes longer than the work

template <class F>
void in_chunks(int64_t n, int threads, F work) {
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
    const int used = n <= SERIAL || threads < 1 ? 1 : threads;
    (void)used;
#pragma omp parallel for schedule(static) num_threads(used) if (used > 1)
    for (int64_t c = 0; c < chunks; ++c) {
        const int64_t first = c * CHUNK;
        work(c, first, first + CHUNK < n ? first + CHUNK : n);
    }
}

template <class F>
double sum_in_chunks(int64_t n, int threads, F work) {
    std::vector<double> parts((n + CHUNK - 1) / CHUNK, 0.0);
    in_chunks(n, threads, [&](int64_t c, int64_t first, int64_t last) { parts[c] = work(first, last); });
    double total = 0;
    for (double part : parts) total += part;
    return total;
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
    while (h.ends[run] <= first) ++run;
    double total = 0;
    for (; first < last; ++run) {
        const int64_t stop = h.ends[run] < last ? h.ends[run] : last;
        total += work(h.values + run, int64_t(0), first, stop);
        first = stop;
    }
    return total;
}

ALWAYS float as_float(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

ALWAYS int32_t as_bits(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

// exp(x) to about 1 ulp: 2^k exp(r) with |r| <= log(2)/2 (Cephes' polynomial). NaN stays NaN.
ALWAYS float exp_of(float x) {
    const float kept = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    const float k = (kept * 1.44269504088896341f + 12582912.0f) - 12582912.0f;  // nearest whole number
    float r = kept - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const float value = p * as_float((static_cast<int32_t>(k) + 127) << 23);
    return x < -87.0f ? 0.0f : (x > 88.0f ? INFINITY : value);
}

// log(x) to about 1 ulp for normal x > 0 (Cephes' polynomial).
ALWAYS float log_of(float x) {
    const int32_t bits = as_bits(x);
    int32_t exponent = ((bits >> 23) & 0xff) - 126;
    float m = as_float((bits & 0x007fffff) | 0x3f000000);  // in [1/2, 1)
    const bool low = m < 0.707106781186547524f;
    exponent = low ? exponent - 1 : exponent;
    m = (low ? m + m : m) - 1.0f;
    const float z = m * m, e = static_cast<float>(exponent);
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z;
    p = p - 2.12194440e-4f * e;
    p = p - 0.5f * z;
    return m + p + 0.693359375f * e;
}

// SplitMix64 (Steele, Lea & Flood 2014): the number of one counter under one key.
ALWAYS uint64_t random_bits(uint64_t key, uint64_t counter) {
    uint64_t z = key + counter * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// BLOCK normals by Box and Muller from the LANES counters of one block.
ALWAYS void normal_block(uint64_t key, int64_t block, float* out) {
    int32_t low[LANES], high[LANES];
    for (int64_t i = 0; i < LANES; ++i) {
        const uint64_t z = random_bits(key, static_cast<uint64_t>(block * LANES + i));
        low[i] = static_cast<int32_t>(z & 0x7fffffffu);
        high[i] = static_cast<int32_t>(z >> 32);
    }
    for (int64_t i = 0; i < LANES; ++i) {
        const float uniform = static_cast<float>(low[i]) * 0x1p-31f + 0x1p-32f;
        const float square = -2.0f * log_of(uniform);
        const float radius = std::sqrt(square > 0.0f ? square : 0.0f);
        // The angle is high * pi / 2^31: a quarter turn, and a rest of at most pi/4 either way.
        const int32_t quarter = static_cast<int32_t>((static_cast<uint32_t>(high[i]) + 0x20000000u)) >> 30;
        const int32_t rest = static_cast<int32_t>(static_cast<uint32_t>(high[i]) - (static_cast<uint32_t>(quarter) << 30));
        const float a = static_cast<float>(rest) * 1.46291807926715968e-9f, z = a * a;
        const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
        const float cosine = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z
                             - 0.5f * z + 1.0f;
        const bool swap = quarter & 1;
        const float c = swap ? sine : cosine, s = swap ? cosine : sine;
        out[i] = ((quarter + 1) & 2 ? -c : c) * radius;
        out[LANES + i] = (quarter & 2 ? -s : s) * radius;
    }
}

// What a standard deviation is made of.
enum Form { FROM_LOG_STD = 0, AS_IT_IS = 1 };
constexpr float TINY = 1.17549435e-38f;

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

#define FOR_BLOCKS                                              \
    for (int64_t at = first; at < last; at += BLOCK) {          \
        const int64_t stop = at + BLOCK < last ? at + BLOCK : last;

template <int form>
void fresh_draw(uint64_t key, const float* mean, const float* state, float* weights, int64_t first, int64_t last) {
    FOR_BLOCKS
        float noise[BLOCK];
        normal_block(key, at / BLOCK, noise);
        for (int64_t i = at; i < stop; ++i) weights[i] = mean[i] + std_of<form>(state[i]) * noise[i - at];
    }
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

// Standard deviations of a matrix as a product of factors: std_ij = sum_k left_ik right_kj, never written to memory.

ALWAYS void tied_stds(const float* left, const float* right, int64_t rank, int64_t columns, int64_t at, int64_t count,
                      float* stds) {
    for (int64_t j = 0; j < count; ++j) stds[j] = left[0] * right[at + j];
    for (int64_t k = 1; k < rank; ++k)
        for (int64_t j = 0; j < count; ++j) stds[j] += left[k] * right[k * columns + at + j];
}

double tied_draw_and_kl(const float* left, const float* right, int64_t rank, int64_t columns, const float* mean,
                        const float* noise, const float* inverse_variance, int64_t stride, float* weights,
                        int64_t first_row, int64_t last_row) {
    double total = 0;
    const float common = stride ? 0.0f : inverse_variance[0];
    for (int64_t row = first_row; row < last_row; ++row)
        for (int64_t at = 0; at < columns; at += BLOCK) {
            const int64_t count = at + BLOCK < columns ? BLOCK : columns - at, base = row * columns + at;
            float stds[BLOCK], part = 0;
            tied_stds(left + row * rank, right, rank, columns, at, count, stds);
#pragma omp simd reduction(+ : part)
            for (int64_t j = 0; j < count; ++j) {
                const float m = mean[base + j], s = stds[j], h = stride ? inverse_variance[base + j] : common;
                if (noise) weights[base + j] = m + s * noise[base + j];
                part += 0.5f * h * (m * m + s * s) - log_std_of<AS_IT_IS>(s);
            }
            total += part;
        }
    return total;
}

template <bool drawn, bool divergent>
void tied_slopes(const float* left, const float* right, int64_t rank, int64_t columns, const float* mean,
                 const float* noise, const float* inverse_variance, int64_t stride, const float* of_weights, float of_kl,
                 float* of_mean, float* of_left, float* of_right, int64_t first_row, int64_t last_row) {
    const float common = divergent && !stride ? inverse_variance[0] : 0.0f;
    for (int64_t row = first_row; row < last_row; ++row) {
        const float* u = left + row * rank;
        for (int64_t k = 0; k < rank; ++k) of_left[row * rank + k] = 0;
        for (int64_t at = 0; at < columns; at += BLOCK) {
            const int64_t count = at + BLOCK < columns ? BLOCK : columns - at, base = row * columns + at;
            float stds[BLOCK], of_stds[BLOCK];
            tied_stds(u, right, rank, columns, at, count, stds);
#pragma omp simd
            for (int64_t j = 0; j < count; ++j) {
                const float s = stds[j], g = drawn ? of_weights[base + j] : 0.0f;
                const float h = divergent ? of_kl * (stride ? inverse_variance[base + j] : common) : 0.0f;
                float flow = drawn ? g * noise[base + j] : 0.0f;
                if (divergent) flow += h * s - of_kl * log_slope_of<AS_IT_IS>(s);
                of_mean[base + j] = divergent ? g + h * mean[base + j] : g;
                of_stds[j] = flow;
            }
            for (int64_t k = 0; k < rank; ++k) {
                const float* v = right + k * columns + at;
                float* of_v = of_right + k * columns + at;
                float part = 0;
                const float factor = u[k];
#pragma omp simd reduction(+ : part)
                for (int64_t j = 0; j < count; ++j) {
                    part += of_stds[j] * v[j];
                    of_v[j] += of_stds[j] * factor;
                }
                of_left[row * rank + k] += part;
            }
        }
    }
}

// A matrix in pieces of whole rows; at most 64 of them, as each has a sum over its columns to itself.
int64_t rows_at_a_time(int64_t rows, int64_t columns) {
    const int64_t by_size = CHUNK / columns, by_count = (rows + 63) / 64;
    return by_size > by_count ? by_size : by_count;
}

int64_t row_pieces(int64_t rows, int64_t columns) {
    const int64_t step = rows_at_a_time(rows, columns);
    return (rows + step - 1) / step;
}

template <class F>
void in_rows(int64_t rows, int64_t columns, int threads, F work) {
    const int64_t step = rows_at_a_time(rows, columns), pieces = row_pieces(rows, columns);
    const int used = rows * columns <= SERIAL || threads < 1 ? 1 : threads;
    (void)used;
#pragma omp parallel for schedule(static) num_threads(used) if (used > 1)
    for (int64_t p = 0; p < pieces; ++p) work(p, p * step, (p + 1) * step < rows ? (p + 1) * step : rows);
}

template <class F>
double sum_in_rows(int64_t rows, int64_t columns, int threads, F work) {
    std::vector<double> parts(row_pieces(rows, columns), 0.0);
    in_rows(rows, columns, threads, [&](int64_t p, int64_t first, int64_t last) { parts[p] = work(first, last); });
    double total = 0;
    for (double part : parts) total += part;
    return total;
}

const float* by_component(const float* factors, int64_t rank, int64_t columns, std::vector<float>& out) {
    out.resize(rank * columns);
    for (int64_t j = 0; j < columns; ++j)
        for (int64_t k = 0; k < rank; ++k) out[k * columns + j] = factors[j * rank + k];
    return out.data();
}

double langevin(uint64_t key, const float* weights, const float* grads, float* out, float rate, float scale,
                         int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float noise[BLOCK], part = 0;
        normal_block(key, at / BLOCK, noise);
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) {
            const float value = weights[i] - rate * grads[i] + scale * noise[i - at];
            out[i] = value;
            part += value;
        }
        total += part;
    }
    return total;
}

void adabound(float* weights, const float* grads, float* means, float* squares, float* largest, float decay,
                       double beta1, double beta2, float eps, float floor, float ceiling, float rate, int64_t first,
                       int64_t last) {
    // 1 - 0.999 in single precision has only five right digits.
    const float gain1 = static_cast<float>(1.0 - beta1), gain2 = static_cast<float>(1.0 - beta2);
    const float keep2 = static_cast<float>(beta2);
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float g = grads[i] + decay * weights[i];
        const float m = means[i] + gain1 * (g - means[i]);
        const float v = keep2 * squares[i] + gain2 * (g * g);
        means[i] = m;
        squares[i] = v;
        float top = v;
        if (largest) {
            top = largest[i] > v ? largest[i] : v;
            largest[i] = top;
        }
        float d = std::sqrt(top) + eps;
        d = d < floor ? floor : d;
        d = d > ceiling ? ceiling : d;
        weights[i] -= rate * (m / d);
    }
}

double sum_of_squares(const float* values, int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) part += values[i] * values[i];
        total += part;
    }
    return total;
}

double moving_average(float* averages, const float* values, float keep, float gain, int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) {
            const float a = keep * averages[i] + gain * values[i];
            averages[i] = a;
            part += a * a;
        }
        total += part;
    }
    return total;
}

// Sum of the magnitudes: finite and small only if all numbers are.
template <int arrays>
double magnitude(const float* a, const float* b, const float* c, int64_t first, int64_t last) {
    double total = 0;
    FOR_BLOCKS
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) {
            float here = std::fabs(a[i]);
            if (arrays > 1) here += std::fabs(b[i]);
            if (arrays > 2) here += std::fabs(c[i]);
            part += here;
        }
        total += part;
    }
    return total;
}

template <bool noisy>
void langevin_step(uint64_t key, float* weights, const float* grads, float rate, float scale, int64_t first, int64_t last) {
    FOR_BLOCKS
        float noise[BLOCK];
        if (noisy) normal_block(key, at / BLOCK, noise);
#pragma omp simd
        for (int64_t i = at; i < stop; ++i) {
            weights[i] += (noisy ? scale * noise[i - at] : 0.0f) - rate * grads[i];
        }
    }
}

template <bool noisy, bool split>
void hamiltonian_step(uint64_t key, float* weights, const float* grads, float* velocity, float momentum, float rate,
                 float scale, int64_t first, int64_t last) {
    FOR_BLOCKS
        float noise[BLOCK];
        if (noisy) normal_block(key, at / BLOCK, noise);
#pragma omp simd
        for (int64_t i = at; i < stop; ++i) {
            const float kick = rate * grads[i], shake = noisy ? scale * noise[i - at] : 0.0f;
            const float kicked = velocity[i] - kick;
            const float v = split ? momentum * kicked + shake : (momentum * velocity[i] - kick) + shake;
            velocity[i] = v;
            weights[i] += split ? 0.5f * kicked + 0.5f * v : v;
        }
    }
}

template <bool noisy>
void preconditioned_step(uint64_t key, float* weights, const float* grads, float* squares, float keep, float gain,
                    float correction, float damping, float rate, float scale, int64_t first, int64_t last) {
    FOR_BLOCKS
        float noise[BLOCK];
        if (noisy) normal_block(key, at / BLOCK, noise);
#pragma omp simd
        for (int64_t i = at; i < stop; ++i) {
            const float g = grads[i], v = keep * squares[i] + gain * (g * g);
            const float size = 1.0f / (std::sqrt(v / correction) + damping);
            squares[i] = v;
            weights[i] += (noisy ? scale * (std::sqrt(size) * noise[i - at]) : 0.0f) - rate * (size * g);
        }
    }
}

// Several arrays as one: pieces of all of them, for one start of the threads. The address of array a in role r is
// pointers[r * arrays + a].
struct Piece {
    int64_t array, first, last;
};

struct Pieces {
    std::vector<Piece> all;
    int64_t total = 0;

    Pieces(const int64_t* sizes, int64_t arrays) {
        for (int64_t a = 0; a < arrays; ++a) {
            total += sizes[a];
            for (int64_t first = 0; first < sizes[a]; first += CHUNK) {
                all.push_back({a, first, first + CHUNK < sizes[a] ? first + CHUNK : sizes[a]});
            }
        }
    }

    template <class F>
    void each(int threads, F work) const {
        const int64_t count = static_cast<int64_t>(all.size());
        const int used = total <= SERIAL || threads < 1 ? 1 : threads;
        (void)used;
#pragma omp parallel for schedule(static) num_threads(used) if (used > 1)
        for (int64_t p = 0; p < count; ++p) work(p, all[p]);
    }
};

struct BoundNumbers {
    float decay, gain1, keep2, gain2, eps, floor, ceiling, rate;
};

template <bool ams>
void bounded_step(float* weights, const float* grads, float* means, float* squares, float* largest, BoundNumbers by,
              int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float g = grads[i] + by.decay * weights[i];
        const float m = means[i] + by.gain1 * (g - means[i]);
        const float v = by.keep2 * squares[i] + by.gain2 * (g * g);
        means[i] = m;
        squares[i] = v;
        float top = v;
        if (ams) {
            top = largest[i] > v ? largest[i] : v;
            largest[i] = top;
        }
        float d = std::sqrt(top) + by.eps;
        d = d < by.floor ? by.floor : d;
        d = d > by.ceiling ? by.ceiling : d;
        weights[i] -= by.rate * (m / d);
    }
}

// |g|^2 and |keep a + gain g|^2 for g = grads + decay weights.
template <bool decays>
void gradient_norms(const float* weights, const float* grads, const float* averages, float decay, float keep, float gain,
                    double* sums, int64_t first, int64_t last) {
    double of_grads = 0, of_averages = 0;
    FOR_BLOCKS
        float part = 0, average = 0;
#pragma omp simd reduction(+ : part, average)
        for (int64_t i = at; i < stop; ++i) {
            const float g = decays ? grads[i] + decay * weights[i] : grads[i];
            const float a = keep * averages[i] + gain * g;
            part += g * g;
            average += a * a;
        }
        of_grads += part;
        of_averages += average;
    }
    sums[0] = of_grads;
    sums[1] = of_averages;
}

template <bool heavy>
void momentum_step(float* weights, const float* grads, float* averages, float* buffers, float decay, float keep,
                   float gain, float momentum, float shrink, float rate, int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float g = grads[i] + decay * weights[i];
        averages[i] = keep * averages[i] + gain * g;
        float move = shrink * g;
        if (heavy) {
            move += momentum * buffers[i];
            buffers[i] = move;
        }
        weights[i] -= rate * move;
    }
}

// log(x) for all x, as in the library of C.
ALWAYS float any_log_of(float x) {
    const bool small = x < TINY;
    float value = log_of(small ? x * 0x1p64f : x) - (small ? 44.3614195558f : 0.0f);
    value = x > 0.0f ? value : (x == 0.0f ? -INFINITY : NAN);
    return x < INFINITY ? value : x;
}

struct NewtonNumbers {
    float ess, rate, gain1, correction, clip, lr;
};

void newton_step(float* mean, const float* of_mean, float* log_std, const float* of_log_std, float* precision,
                 float* momentum, const float* decay, const float* scale, NewtonNumbers by, int64_t first, int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float before = precision[i];
        const float change = (decay[i] / before + by.ess * of_log_std[i] - 1.0f) * by.rate;
        const float h = before * (0.5f * (change * change) + change + 1.0f);
        const float m = momentum[i] + by.gain1 * (of_mean[i] - momentum[i]);
        float move = (m / by.correction + decay[i] * mean[i]) / h;
        move = move < -by.clip ? -by.clip : move;
        move = move > by.clip ? by.clip : move;
        precision[i] = h;
        momentum[i] = m;
        mean[i] -= by.lr * (move * scale[i]);
        log_std[i] = -0.5f * any_log_of(by.ess * h);
    }
}

}  // namespace

extern "C" {

int bayeswell_version() { return 2; }

void bayeswell_normals(uint64_t key, float* out, int64_t n, int threads) {
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) { normals(key, out, first, last); });
}

void bayeswell_fresh_draw(int form, uint64_t key, const float* mean, const float* state, float* weights, int64_t n,
                          int threads) {
    auto work = form == FROM_LOG_STD ? fresh_draw<FROM_LOG_STD> : fresh_draw<AS_IT_IS>;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) { work(key, mean, state, weights, first, last); });
}

double bayeswell_draw_and_kl(int form, const float* mean, const float* state, const float* noise, const float* precisions,
                             const int64_t* ends, int64_t runs, float* weights, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? draw_and_kl<FROM_LOG_STD> : draw_and_kl<AS_IT_IS>;
    const Precision precision{precisions, ends, runs};
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) {
        return over_runs(precision, first, last, [=](const float* h, int64_t stride, int64_t from, int64_t to) {
            return work(mean, state, noise, h, stride, weights, from, to);
        });
    });
}

void bayeswell_slopes(int form, const float* mean, const float* state, const float* noise, const float* precisions,
                      const int64_t* ends, int64_t runs, const float* of_weights, const float* of_kl, float* of_mean,
                      float* of_state, int64_t n, int threads) {
    auto work = form == FROM_LOG_STD ? slopes_for<FROM_LOG_STD>(of_weights, of_kl) : slopes_for<AS_IT_IS>(of_weights, of_kl);
    const Precision precision{precisions, ends, runs};
    const float c = of_kl ? *of_kl : 0.0f;
    in_chunks(n, threads, [=](int64_t, int64_t begin, int64_t end) {
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

// A posterior with tied sites, whole: one row of the table for each site, its place in the flat vector, its number of
// weights, its number of columns (0: not tied, its log stds lie one by one) and where its left and right factors, or its
// log stds, begin. Right factors come as (columns, rank) and are laid out by component first.
struct TiedSite {
    int64_t at, size, columns, left, right;
};

double bayeswell_tied_draw_and_kl(const TiedSite* sites, int64_t count, int64_t rank, const float* factors,
                                  const float* log_std, const float* mean, const float* noise, const float* precisions,
                                  int64_t by_site, float* weights, int64_t n, int threads) {
    const int64_t stride = by_site ? 0 : 1;
    double total = 0;
    std::vector<float> right;
    for (const TiedSite* site = sites; site < sites + count; ++site) {
        const float *m = mean + site->at, *e = noise ? noise + site->at : nullptr;
        const float* h = precisions + (by_site ? site - sites : site->at);
        float* w = weights ? weights + site->at : nullptr;
        if (!site->columns) {
            const float* state = log_std + site->left;
            total += sum_in_chunks(site->size, threads, [=](int64_t first, int64_t last) {
                return draw_and_kl<FROM_LOG_STD>(m, state, e, h, stride, w, first, last);
            });
            continue;
        }
        const int64_t columns = site->columns;
        const float *left = factors + site->left, *v = by_component(factors + site->right, rank, columns, right);
        total += sum_in_rows(site->size / columns, columns, threads, [=](int64_t first, int64_t last) {
            return tied_draw_and_kl(left, v, rank, columns, m, e, h, stride, w, first, last);
        });
    }
    (void)n;
    return total;
}

void bayeswell_tied_slopes(const TiedSite* sites, int64_t count, int64_t rank, const float* factors, const float* log_std,
                           const float* mean, const float* noise, const float* precisions, int64_t by_site,
                           const float* of_weights, const float* of_kl, float* of_mean, float* of_factors,
                           float* of_log_std, int64_t n, int threads) {
    const int64_t stride = by_site ? 0 : 1;
    const float c = of_kl ? *of_kl : 0.0f;
    auto free_work = slopes_for<FROM_LOG_STD>(of_weights, of_kl);
    auto work = !of_weights ? tied_slopes<false, true> : of_kl ? tied_slopes<true, true> : tied_slopes<true, false>;
    std::vector<float> right, sums;
    for (const TiedSite* site = sites; site < sites + count; ++site) {
        const float *m = mean + site->at, *e = noise ? noise + site->at : nullptr;
        const float* h = precisions + (by_site ? site - sites : site->at);
        const float* g = of_weights ? of_weights + site->at : nullptr;
        float* of_m = of_mean + site->at;
        if (!site->columns) {
            const float* state = log_std + site->left;
            float* of_state = of_log_std + site->left;
            in_chunks(site->size, threads, [=](int64_t, int64_t first, int64_t last) {
                free_work(m, state, e, h, stride, g, c, of_m, of_state, first, last);
            });
            continue;
        }
        const int64_t columns = site->columns, rows = site->size / columns, width = rank * columns;
        const float *left = factors + site->left, *v = by_component(factors + site->right, rank, columns, right);
        float* of_left = of_factors + site->left;
        sums.assign(row_pieces(rows, columns) * width, 0.0f);
        float* pieces = sums.data();
        in_rows(rows, columns, threads, [=](int64_t piece, int64_t first, int64_t last) {
            work(left, v, rank, columns, m, e, h, stride, g, c, of_m, of_left, pieces + piece * width, first, last);
        });
        float* of_right = of_factors + site->right;
        for (int64_t j = 0; j < columns; ++j)
            for (int64_t k = 0; k < rank; ++k) {
                float sum = 0;
                for (size_t p = k * columns + j; p < sums.size(); p += width) sum += sums[p];
                of_right[j * rank + k] = sum;
            }
    }
    (void)n;
}

double bayeswell_langevin(uint64_t key, const float* weights, const float* grads, float* out, float rate, float scale,
                          int64_t n, int threads) {
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) {
        return langevin(key, weights, grads, out, rate, scale, first, last);
    });
}

void bayeswell_adabound(float* weights, const float* grads, float* means, float* squares, float* largest, float decay,
                        double beta1, double beta2, float eps, float floor, float ceiling, float rate, int64_t n,
                        int threads) {
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        adabound(weights, grads, means, squares, largest, decay, beta1, beta2, eps, floor, ceiling, rate, first, last);
    });
}

double bayeswell_sum_of_squares(const float* values, int64_t n, int threads) {
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) { return sum_of_squares(values, first, last); });
}

double bayeswell_moving_average(float* averages, const float* values, float keep, float gain, int64_t n, int threads) {
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) {
        return moving_average(averages, values, keep, gain, first, last);
    });
}

double bayeswell_magnitude(const float* a, const float* b, const float* c, int64_t n, int threads) {
    auto work = c ? magnitude<3> : b ? magnitude<2> : magnitude<1>;
    return sum_in_chunks(n, threads, [=](int64_t first, int64_t last) { return work(a, b, c, first, last); });
}

void bayeswell_langevin_step(int noisy, uint64_t key, float* weights, const float* grads, float rate, float scale, int64_t n,
                        int threads) {
    auto work = noisy ? langevin_step<true> : langevin_step<false>;
    in_chunks(n, threads,
              [=](int64_t, int64_t first, int64_t last) { work(key, weights, grads, rate, scale, first, last); });
}

void bayeswell_hamiltonian_step(int noisy, uint64_t key, int split, float* weights, const float* grads, float* velocity,
                           float momentum, float rate, float scale, int64_t n, int threads) {
    auto work = split ? (noisy ? hamiltonian_step<true, true> : hamiltonian_step<false, true>)
                      : (noisy ? hamiltonian_step<true, false> : hamiltonian_step<false, false>);
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        work(key, weights, grads, velocity, momentum, rate, scale, first, last);
    });
}

void bayeswell_preconditioned_step(int noisy, uint64_t key, float* weights, const float* grads, float* squares, float keep,
                              float gain, float correction, float damping, float rate, float scale, int64_t n,
                              int threads) {
    auto work = noisy ? preconditioned_step<true> : preconditioned_step<false>;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        work(key, weights, grads, squares, keep, gain, correction, damping, rate, scale, first, last);
    });
}

void bayeswell_bounded_step(float* const* pointers, const int64_t* sizes, int ams, float decay, float gain1, float keep2,
                        float gain2, float eps, float floor, float ceiling, float rate, int64_t arrays, int threads) {
    const BoundNumbers by = {decay, gain1, keep2, gain2, eps, floor, ceiling, rate};
    auto work = ams ? bounded_step<true> : bounded_step<false>;
    Pieces(sizes, arrays).each(threads, [=](int64_t, Piece p) {
        float* const* of = pointers + p.array;
        work(of[0], of[arrays], of[2 * arrays], of[3 * arrays], ams ? of[4 * arrays] : nullptr, by, p.first, p.last);
    });
}

void bayeswell_gradient_norms(float* const* pointers, const int64_t* sizes, float decay, float keep, float gain,
                              double* squares, int64_t arrays, int threads) {
    const Pieces pieces(sizes, arrays);
    auto work = decay != 0.0f ? gradient_norms<true> : gradient_norms<false>;
    std::vector<double> sums(2 * pieces.all.size(), 0.0);
    pieces.each(threads, [&](int64_t index, Piece p) {
        float* const* of = pointers + p.array;
        work(of[0], of[arrays], of[2 * arrays], decay, keep, gain, &sums[2 * index], p.first, p.last);
    });
    squares[0] = squares[1] = 0;
    for (size_t i = 0; i < sums.size(); ++i) squares[i % 2] += sums[i];
}

void bayeswell_momentum_step(float* const* pointers, const int64_t* sizes, float decay, float keep, float gain,
                             float momentum, float shrink, float rate, int64_t arrays, int threads) {
    auto work = momentum != 0.0f ? momentum_step<true> : momentum_step<false>;
    Pieces(sizes, arrays).each(threads, [=](int64_t, Piece p) {
        float* const* of = pointers + p.array;
        work(of[0], of[arrays], of[2 * arrays], of[3 * arrays], decay, keep, gain, momentum, shrink, rate, p.first,
             p.last);
    });
}

void bayeswell_newton_step(float* mean, const float* of_mean, float* log_std, const float* of_log_std, float* precision,
                           float* momentum, const float* decay, const float* scale, float ess, float rate, float gain1,
                           float correction, float clip, float lr, int64_t n, int threads) {
    const NewtonNumbers by = {ess, rate, gain1, correction, clip, lr};
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        newton_step(mean, of_mean, log_std, of_log_std, precision, momentum, decay, scale, by, first, last);
    });
}
}
