// Gaussian weights with covariance S (I + L L') S, S = diag(s), L of few columns: the draw w = m + s (noise + L c), the
// divergence sum [h (m^2 + s^2 (1 + |L_i|^2)) / 2 - log s], the products L'L of its log determinant, and their slopes.
//
// Rows of L are short and lie one behind the other. A block of them is laid out by column first, in memory that stays in
// the nearest cache: so every loop is over numbers in a row, and nothing of the size of L is ever written but its slope.

#include "gaussian.h"

namespace {

constexpr int64_t PAIR = 2;  // the usual number of columns: known to the compiler, rows are read by whole registers

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

// Four columns of four rows that are `rank` numbers apart, each column BLOCK behind the one before.
ALWAYS void turn_four(const float* rows, int64_t rank, float* columns) {
    auto row = [=](int64_t i) { return *reinterpret_cast<const Four*>(rows + i * rank); };
    const Four a = row(0), b = row(1), c = row(2), d = row(3);
    for (int64_t k = 0; k < 4; ++k) *reinterpret_cast<Four*>(columns + k * BLOCK) = Four{a[k], b[k], c[k], d[k]};
}

// columns[k * BLOCK + i] = loading[(at + i) * rank + k].
template <int64_t fixed>
ALWAYS void by_column(const float* loading, int64_t rank, int64_t at, int64_t stop, float* columns) {
    const int64_t r = fixed ? fixed : rank, size = stop - at;
    const float* from = loading + at * r;
    // Tiles, as far as there are rows and columns for them; then number by number.
    const int64_t rows = size / 4 * 4, tiled = fixed ? 0 : r / 4 * 4;
    for (int64_t i = 0; i < rows; i += 4)
        for (int64_t k = 0; k < tiled; k += 4) turn_four(from + i * r + k, r, columns + k * BLOCK + i);
    for (int64_t k = 0; k < r; ++k)
        for (int64_t i = k < tiled ? rows : 0; i < size; ++i) columns[k * BLOCK + i] = from[i * r + k];
}

// What one block adds to the divergence; its draw, and its part of L'L (the rows of the lower triangle one by one).
template <int64_t fixed, bool drawn, bool each>
double low_rank_draw_of(const float* mean, const float* log_std, const float* loading, int64_t rank, const float* noise,
                      const float* drawn_columns, const float* inverse_variance, float* weights, float* columns,
                      double* gram, int64_t first, int64_t last) {
    const int64_t r = fixed ? fixed : rank;
    const float common = inverse_variance[0];
    double total = 0;
    FOR_BLOCKS
        const int64_t size = stop - at;
        by_column<fixed>(loading, rank, at, stop, columns);
        float widening[BLOCK], shared[BLOCK];
        for (int64_t i = 0; i < size; ++i) widening[i] = 1.0f, shared[i] = drawn ? noise[at + i] : 0.0f;
        for (int64_t k = 0; k < r; ++k) {
            const float* column = columns + k * BLOCK;
            const float c = drawn ? drawn_columns[k] : 0.0f;
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) {
                widening[i] += column[i] * column[i];
                if (drawn) shared[i] += c * column[i];
            }
        }
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < stop; ++i) {
            const float m = mean[i], s = exp_of(log_std[i]), h = each ? inverse_variance[i] : common;
            if (drawn) weights[i] = m + s * shared[i - at];
            part += 0.5f * h * (m * m + s * s * widening[i - at]) - log_std[i];
        }
        total += part;
        double* product = gram;
        for (int64_t k = 0; k < r; ++k)
            for (int64_t l = 0; l <= k; ++l) {
                const float *left = columns + k * BLOCK, *right = columns + l * BLOCK;
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t i = 0; i < size; ++i) sum += left[i] * right[i];
                *product++ += sum;
            }
    }
    return total;
}

// With K = (I + L'L)^-1 (inverse), c = of_kl and g = of_weights: d/dm = g + c h m,
// d/d log s = g s (noise + L c') + c (h s^2 (1 + |L_i|^2) - 1), d/dL_i = g s c' + c (h s^2 L_i - L_i K).
template <int64_t fixed, bool drawn, bool divergent, bool each>
void low_rank_slopes_of(const float* mean, const float* log_std, const float* loading, int64_t rank, const float* noise,
               const float* drawn_columns, const float* inverse_variance, const float* inverse, const float* of_weights,
               float of_kl, float* of_mean, float* of_log_std, float* of_loading, float* columns, int64_t first,
               int64_t last) {
    const int64_t r = fixed ? fixed : rank;
    const float common = divergent && !each ? inverse_variance[0] : 0.0f;
    FOR_BLOCKS
        const int64_t size = stop - at;
        by_column<fixed>(loading, rank, at, stop, columns);
        float widening[BLOCK], shared[BLOCK], along[BLOCK], pull[BLOCK];
        for (int64_t i = 0; i < size; ++i) widening[i] = 1.0f, shared[i] = drawn ? noise[at + i] : 0.0f;
        for (int64_t k = 0; k < r; ++k) {
            const float* column = columns + k * BLOCK;
            const float c = drawn ? drawn_columns[k] : 0.0f;
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) {
                if (divergent) widening[i] += column[i] * column[i];
                if (drawn) shared[i] += c * column[i];
            }
        }
#pragma omp simd
        for (int64_t i = at; i < stop; ++i) {
            const float s = exp_of(log_std[i]), g = drawn ? of_weights[i] : 0.0f;
            const float h = divergent ? of_kl * (each ? inverse_variance[i] : common) : 0.0f;
            along[i - at] = g * s;
            pull[i - at] = h * s * s;
            of_mean[i] = divergent ? g + h * mean[i] : g;
            const float flow = drawn ? along[i - at] * shared[i - at] : 0.0f;
            of_log_std[i] = divergent ? flow + pull[i - at] * widening[i - at] - of_kl : flow;
        }
        float* to = of_loading + at * r;
        for (int64_t k = 0; k < r; ++k) {
            const float* column = columns + k * BLOCK;
            const float c = drawn ? drawn_columns[k] : 0.0f;
            float slope[BLOCK];
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) {
                const float flow = drawn ? along[i] * c : 0.0f;
                slope[i] = divergent ? flow + pull[i] * column[i] : flow;
            }
            for (int64_t l = 0; divergent && l < r; ++l) {
                const float* other = columns + l * BLOCK;
                const float weight = of_kl * inverse[k * r + l];
#pragma omp simd
                for (int64_t i = 0; i < size; ++i) slope[i] -= weight * other[i];
            }
            for (int64_t i = 0; i < size; ++i) to[i * r + k] = slope[i];
        }
    }
}

// Lanes that are added up together: what a compiler keeps in registers, whatever the processor has of them.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t WIDE = sizeof(Lanes) / sizeof(float), TILE = 4 * WIDE;

// along[i] = sum over k of c[k] columns[k * BLOCK + i], for a whole block of columns.
ALWAYS void along_columns(const float* columns, const float* c, int64_t rank, float* along) {
    for (int64_t tile = 0; tile < BLOCK; tile += TILE) {
        Lanes a = {}, b = {}, d = {}, e = {};
        for (int64_t k = 0; k < rank; ++k) {
            const Lanes* column = reinterpret_cast<const Lanes*>(columns + k * BLOCK + tile);
            a += c[k] * column[0];
            b += c[k] * column[1];
            d += c[k] * column[2];
            e += c[k] * column[3];
        }
        Lanes* sums = reinterpret_cast<Lanes*>(along + tile);
        sums[0] = a, sums[1] = b, sums[2] = d, sums[3] = e;
    }
}

// Draws m + s (noise + L c), each with a key and an own c, `stride` behind the one before. A block of means, stds and columns
// is read once for all of them.
void low_rank_draws(const uint64_t* keys, int64_t draws, const float* mean, const float* std, const float* loading,
                    int64_t rank, const float* drawn_columns, float* weights, int64_t stride, bool around,
                    float* columns, int64_t first, int64_t last) {
    FOR_BLOCKS
        by_column<0>(loading, rank, at, stop, columns);
        for (int64_t draw = 0; draw < draws; ++draw) {
            float noise[BLOCK], along[BLOCK];
            normal_block(keys[draw], at / BLOCK, noise);
            along_columns(columns, drawn_columns + draw * rank, rank, along);
            float* row = weights + draw * stride;
            float* drawn = around ? noise - at : row;
#pragma omp simd
            for (int64_t i = at; i < stop; ++i) drawn[i] = mean[i] + std[i] * (noise[i - at] + along[i - at]);
            if (around) write_around(row + at, noise, stop - at);
        }
    }
    if (around) end_writing_around();
}

template <int64_t fixed>
auto draw_for(const float* noise, int64_t stride) {
    return noise ? (stride ? low_rank_draw_of<fixed, true, true> : low_rank_draw_of<fixed, true, false>)
                 : (stride ? low_rank_draw_of<fixed, false, true> : low_rank_draw_of<fixed, false, false>);
}

template <int64_t fixed, bool each>
auto slopes_for_rank(const float* of_weights, const float* of_kl) {
    return !of_weights ? low_rank_slopes_of<fixed, false, true, each>
           : of_kl     ? low_rank_slopes_of<fixed, true, true, each>
                       : low_rank_slopes_of<fixed, true, false, each>;
}

}  // namespace

extern "C" {

void bayeswell_low_rank_fresh_draws(int64_t rank, const uint64_t* keys, int64_t draws, const float* mean, const float* std,
                                    const float* loading, const float* drawn_columns, float* weights, int64_t stride,
                                    int64_t n, int threads) {
    const bool around = goes_around(weights, stride, draws * n);
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        std::vector<float> columns(rank * BLOCK, 0.0f);
        low_rank_draws(keys, draws, mean, std, loading, rank, drawn_columns, weights, stride, around, columns.data(), first,
                       last);
    });
}

// The noise of the weights is given, or (with none) made of a key, chunk by chunk, if `keyed`; else there is no draw.
// `gram` has room for the lower triangle of L'L, row by row.
double bayeswell_low_rank_draw_and_kl(int64_t rank, const float* mean, const float* log_std, const float* loading,
                                      const float* given, int keyed, uint64_t key, const float* drawn_columns,
                                      const float* precisions, const int64_t* ends, int64_t runs, float* weights,
                                      double* gram, int64_t n, int threads) {
    const Precision precision{precisions, ends, runs};
    const int64_t products = rank * (rank + 1) / 2;
    const Noise all{given, keyed != 0, key};
    std::vector<double> parts((n + CHUNK - 1) / CHUNK * products, 0.0);
    double* sums = parts.data();
    const double total = sum_in_chunks(n, threads, [=](int64_t first, int64_t last) {
        std::vector<float> columns(rank * BLOCK);
        NoiseParts fresh(all);
        const float* noise = fresh.part(first, last);
        return over_runs(precision, first, last, [&](const float* h, int64_t stride, int64_t from, int64_t to) {
            auto work = rank == PAIR ? draw_for<PAIR>(noise, stride) : draw_for<0>(noise, stride);
            return work(mean, log_std, loading, rank, noise, drawn_columns, h, weights, columns.data(),
                        sums + first / CHUNK * products, from, to);
        });
    });
    for (int64_t p = 0; p < products; ++p) {
        gram[p] = 0;
        for (size_t at = p; at < parts.size(); at += products) gram[p] += parts[at];
    }
    return total;
}

void bayeswell_low_rank_slopes(int64_t rank, const float* mean, const float* log_std, const float* loading,
                               const float* given, int keyed, uint64_t key, const float* drawn_columns,
                               const float* precisions, const int64_t* ends, int64_t runs, const float* inverse,
                               const float* of_weights, const float* of_kl, float* of_mean, float* of_log_std,
                               float* of_loading, int64_t n, int threads) {
    const Precision precision{precisions, ends, runs};
    const Noise all{given, keyed != 0, key};
    const float c = of_kl ? *of_kl : 0.0f;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        std::vector<float> columns(rank * BLOCK);
        NoiseParts fresh(all);
        const float* noise = fresh.part(first, last);
        over_runs(precision, first, last, [&](const float* h, int64_t stride, int64_t from, int64_t to) {
            auto work = stride ? (rank == PAIR ? slopes_for_rank<PAIR, true>(of_weights, of_kl)
                                               : slopes_for_rank<0, true>(of_weights, of_kl))
                               : (rank == PAIR ? slopes_for_rank<PAIR, false>(of_weights, of_kl)
                                               : slopes_for_rank<0, false>(of_weights, of_kl));
            work(mean, log_std, loading, rank, noise, drawn_columns, h, inverse, of_weights, c, of_mean, of_log_std,
                 of_loading, columns.data(), from, to);
            return 0.0;
        });
    });
}
}
