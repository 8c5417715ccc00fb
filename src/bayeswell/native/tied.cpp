// Independent Gaussian weights whose stds are, for some matrices, products of small factors (posteriors/k_tied.py): the
// draw, the divergence and their slopes.

#include "gaussian.h"

namespace {

// Standard deviations of a matrix as a product of factors: std_ij = sum_k left_ik right_kj, never written to memory.

ALWAYS void tied_stds(const float* left, const float* right, int64_t rank, int64_t columns, int64_t at, int64_t count,
                      float* stds) {
    for (int64_t j = 0; j < count; ++j) stds[j] = left[0] * right[at + j];
    for (int64_t k = 1; k < rank; ++k)
        for (int64_t j = 0; j < count; ++j) stds[j] += left[k] * right[k * columns + at + j];
}

// Cases are templates here too: a test inside a loop keeps it from being vectorised well.
template <bool drawn, bool each>
double tied_draw_and_kl(const float* left, const float* right, int64_t rank, int64_t columns, const float* mean,
                        const float* noise, const float* inverse_variance, float* weights, int64_t first_row,
                        int64_t last_row) {
    double total = 0;
    const float common = inverse_variance[0];
    for (int64_t row = first_row; row < last_row; ++row)
        for (int64_t at = 0; at < columns; at += BLOCK) {
            const int64_t count = at + BLOCK < columns ? BLOCK : columns - at, base = row * columns + at;
            float stds[BLOCK], part = 0;
            tied_stds(left + row * rank, right, rank, columns, at, count, stds);
#pragma omp simd reduction(+ : part)
            for (int64_t j = 0; j < count; ++j) {
                const float m = mean[base + j], s = stds[j], h = each ? inverse_variance[base + j] : common;
                if (drawn) weights[base + j] = m + s * noise[base + j];
                part += 0.5f * h * (m * m + s * s) - log_std_of<AS_IT_IS>(s);
            }
            total += part;
        }
    return total;
}

template <bool drawn, bool divergent, bool each>
void tied_slopes(const float* left, const float* right, int64_t rank, int64_t columns, const float* mean,
                 const float* noise, const float* inverse_variance, const float* of_weights, float of_kl, float* of_mean,
                 float* of_left, float* of_right, int64_t first_row, int64_t last_row) {
    const float common = divergent && !each ? inverse_variance[0] : 0.0f;
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
                const float h = divergent ? of_kl * (each ? inverse_variance[base + j] : common) : 0.0f;
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

template <bool each>
auto tied_slopes_for(const float* of_weights, const float* of_kl) {
    return !of_weights ? tied_slopes<false, true, each> : of_kl ? tied_slopes<true, true, each> : tied_slopes<true, false, each>;
}

// A matrix in pieces of whole rows; at most 64 of them, as each has a sum over its columns to itself.
int64_t rows_at_a_time(int64_t rows, int64_t columns) {
    const int64_t by_size = CHUNK / columns, by_count = (rows + 63) / 64;
    const int64_t step = by_size > by_count ? by_size : by_count;
    return step > 0 ? step : 1;
}

int64_t row_pieces(int64_t rows, int64_t columns) {
    const int64_t step = rows_at_a_time(rows, columns);
    return (rows + step - 1) / step;
}

template <class F>
void in_rows(int64_t rows, int64_t columns, int threads, F work) {
    const int64_t step = rows_at_a_time(rows, columns), pieces = row_pieces(rows, columns);
    in_parallel(pieces, rows * columns, threads, [&](int64_t p) {
        work(p, p * step, (p + 1) * step < rows ? (p + 1) * step : rows);
    });
}

template <class F>
double sum_in_rows(int64_t rows, int64_t columns, int threads, F work) {
    std::vector<double> parts(row_pieces(rows, columns), 0.0);
    in_rows(rows, columns, threads, [&](int64_t p, int64_t first, int64_t last) { parts[p] = work(first, last); });
    double total = 0;
    for (double part : parts) total += part;
    return total;
}

// work(noise, from, to) on rows [first, last) of a site that begins at `at`: all of them, or as many at a time as have noise
// that stays in the caches.
template <class F>
double over_rows(const Noise& all, int64_t at, int64_t columns, int64_t first, int64_t last, F work) {
    NoiseParts fresh(all);
    const int64_t few = columns < CHUNK ? CHUNK / columns : 1, step = all.keyed ? few : last - first;
    double total = 0;
    for (int64_t from = first; from < last; from += step) {
        const int64_t to = from + step < last ? from + step : last;
        const float* noise = fresh.part(at + from * columns, at + to * columns);
        total += work(noise ? noise + at : nullptr, from, to);
    }
    return total;
}

const float* by_component(const float* factors, int64_t rank, int64_t columns, std::vector<float>& out) {
    out.resize(rank * columns);
    for (int64_t j = 0; j < columns; ++j)
        for (int64_t k = 0; k < rank; ++k) out[k * columns + j] = factors[j * rank + k];
    return out.data();
}

}  // namespace

extern "C" {

// A posterior with tied sites, whole: one row of the table for each site, its place in the flat vector, its number of
// weights, its number of columns (0: not tied, its log stds lie one by one) and where its left and right factors, or its
// log stds, begin. Right factors come as (columns, rank) and are laid out by component first.
struct TiedSite {
    int64_t at, size, columns, left, right;
};

// Whether all that the table speaks of lies within the arrays. Differences, not sums: these cannot overflow.
int bayeswell_tied_fits(const TiedSite* sites, int64_t count, int64_t rank, int64_t factors, int64_t log_stds, int64_t n,
                        int) {
    if (rank < 1) return 0;
    const auto within = [](int64_t at, int64_t size, int64_t all) { return at >= 0 && size >= 0 && at <= all && size <= all - at; };
    const auto each = [&](int64_t rows) { return rows <= factors / rank ? rows * rank : factors + 1; };
    for (const TiedSite* site = sites; site < sites + count; ++site) {
        if (!within(site->at, site->size, n) || site->columns < 0) return 0;
        if (!site->columns) {
            if (!within(site->left, site->size, log_stds)) return 0;
        } else if (site->size % site->columns || !within(site->left, each(site->size / site->columns), factors) ||
                   !within(site->right, each(site->columns), factors)) {
            return 0;
        }
    }
    return 1;
}

double bayeswell_tied_draw_and_kl(const TiedSite* sites, int64_t count, int64_t rank, const float* factors,
                                  const float* log_std, const float* mean, const float* given, int keyed, uint64_t key,
                                  const float* precisions, int64_t by_site, float* weights, int64_t n, int threads) {
    const int64_t stride = by_site ? 0 : 1;
    const Noise all{given, keyed != 0, key};
    auto work = all.any() ? (stride ? tied_draw_and_kl<true, true> : tied_draw_and_kl<true, false>)
                          : (stride ? tied_draw_and_kl<false, true> : tied_draw_and_kl<false, false>);
    double total = 0;
    std::vector<float> right;
    for (const TiedSite* site = sites; site < sites + count; ++site) {
        const int64_t at = site->at;
        const float* m = mean + at;
        const float* h = precisions + (by_site ? site - sites : at);
        float* w = weights ? weights + at : nullptr;
        if (!site->columns) {
            const float* state = log_std + site->left;
            total += sum_in_chunks(site->size, threads, [=](int64_t first, int64_t last) {
                return over_rows(all, at, 1, first, last, [=](const float* noise, int64_t from, int64_t to) {
                    return draw_and_kl<FROM_LOG_STD>(m, state, noise, h, stride, w, from, to);
                });
            });
            continue;
        }
        const int64_t columns = site->columns;
        const float *left = factors + site->left, *v = by_component(factors + site->right, rank, columns, right);
        total += sum_in_rows(site->size / columns, columns, threads, [=](int64_t first, int64_t last) {
            return over_rows(all, at, columns, first, last, [=](const float* noise, int64_t from, int64_t to) {
                return work(left, v, rank, columns, m, noise, h, w, from, to);
            });
        });
    }
    (void)n;
    return total;
}

// `of_mean` may be the memory of `of_weights`.
void bayeswell_tied_slopes(const TiedSite* sites, int64_t count, int64_t rank, const float* factors, const float* log_std,
                           const float* mean, const float* given, int keyed, uint64_t key, const float* precisions,
                           int64_t by_site, const float* of_weights, const float* of_kl, float* of_mean,
                           float* of_factors, float* of_log_std, int64_t n, int threads) {
    const int64_t stride = by_site ? 0 : 1;
    const Noise all{given, keyed != 0, key};
    const float c = of_kl ? *of_kl : 0.0f;
    auto free_work = slopes_for<FROM_LOG_STD>(of_weights, of_kl);
    auto work = stride ? tied_slopes_for<true>(of_weights, of_kl) : tied_slopes_for<false>(of_weights, of_kl);
    std::vector<float> right, sums;
    for (const TiedSite* site = sites; site < sites + count; ++site) {
        const int64_t at = site->at;
        const float* m = mean + at;
        const float* h = precisions + (by_site ? site - sites : at);
        const float* g = of_weights ? of_weights + at : nullptr;
        float* of_m = of_mean + at;
        if (!site->columns) {
            const float* state = log_std + site->left;
            float* of_state = of_log_std + site->left;
            in_chunks(site->size, threads, [=](int64_t, int64_t first, int64_t last) {
                over_rows(all, at, 1, first, last, [=](const float* noise, int64_t from, int64_t to) {
                    free_work(m, state, noise, h, stride, g, c, of_m, of_state, from, to);
                    return 0.0;
                });
            });
            continue;
        }
        const int64_t columns = site->columns, rows = site->size / columns, width = rank * columns;
        const float *left = factors + site->left, *v = by_component(factors + site->right, rank, columns, right);
        float* of_left = of_factors + site->left;
        sums.assign(row_pieces(rows, columns) * width, 0.0f);
        float* of_columns = sums.data();
        in_rows(rows, columns, threads, [=](int64_t piece, int64_t first, int64_t last) {
            over_rows(all, at, columns, first, last, [=](const float* noise, int64_t from, int64_t to) {
                work(left, v, rank, columns, m, noise, h, g, c, of_m, of_left, of_columns + piece * width, from, to);
                return 0.0;
            });
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
}
