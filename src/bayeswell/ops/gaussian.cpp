// Counter noise, and the draw of a factorized Gaussian with its KL and gradients: one pass over the weights each.
//
// Plain C functions of float32 arrays, called through ctypes; plain.py has the same formulas in torch.

#include "kernels.h"

Runtime runtime = {nullptr, nullptr, nullptr};

// q: means m, and spreads (stds s or log s). p: h = 1 / p^2 of each weight, or of each of `sites` stretches of weights
// that end before ends[site]; centers z or null.
struct Gaussians {
    const float *mean, *spread;
    int log_std;
    const float* inverse_variances;
    const int64_t* ends;
    int64_t sites;
    const float* center;
};

// One block of weights: h and m - z, where they lie or in memory that stays in the nearest cache.
struct Block {
    const float *inverse_variance, *offset;

    void load(const Gaussians& g, int64_t at, int64_t count) {
        inverse_variance = g.inverse_variances + at;
        offset = g.mean + at;
        if (g.center) {
            offset = offsets;
            for (int64_t i = 0; i < count; ++i) offsets[i] = g.mean[at + i] - g.center[at + i];
        }
        if (g.sites) {
            inverse_variance = values;
            fill(g, at, count);
        }
    }

  private:
    alignas(64) float offsets[BLOCK], values[BLOCK];
    int64_t site = 0, filled = -1;  // `filled`: the site of all values, if there is one

    void fill(const Gaussians& g, int64_t at, int64_t count) {
        for (int64_t i = 0; i < count;) {
            while (site + 1 < g.sites && g.ends[site] <= at + i) ++site;
            const int64_t left = site + 1 < g.sites ? g.ends[site] - at : BLOCK, stop = left < count ? left : count;
            if (left >= BLOCK && i == 0) {
                if (filled == site) return;
                filled = site;
            } else {
                filled = -1;
            }
            for (const float value = g.inverse_variances[site]; i < (filled < 0 ? stop : BLOCK); ++i) values[i] = value;
        }
    }
};

// Return sum h ((m - z)^2 + s^2) / 2 - log s; write s.
template <bool log_std>
static float block_kl(const Block& block, const float* spread, float* stds, int64_t count) {
    const float *h = block.inverse_variance, *offset = block.offset;
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; ++i) {
        const float s = log_std ? exp_of(spread[i]) : spread[i];
        stds[i] = s;
        total += 0.5f * h[i] * (offset[i] * offset[i] + s * s) - (log_std ? spread[i] : log_of(s < TINY ? TINY : s));
    }
    return total;
}

// d/dm = g + c h (m - z), d/ds = g eps + c (h s - 1/s), d/dlog s = s d/ds, for the sums over draws of gradients g and of
// g eps, and the gradient c of the KL.
template <bool log_std>
static void block_gradients(const Block& block, const float* spread, const float* sums, const float* noise_sums,
                            float of_kl, float* of_mean, float* of_spread, int64_t count) {
    const float *h = block.inverse_variance, *offset = block.offset;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
        const float s = log_std ? exp_of(spread[i]) : spread[i], flow = of_kl * h[i], of_std = noise_sums[i] + flow * s;
        of_mean[i] = sums[i] + flow * offset[i];
        of_spread[i] = log_std ? of_std * s - of_kl : of_std - (s < TINY ? 0.0f : of_kl / s);
    }
}

extern "C" {

void bayeswell_use_threads(void* parallel, void* thread, void* threads) {
    runtime.thread = reinterpret_cast<int (*)()>(thread);
    runtime.threads = reinterpret_cast<int (*)()>(threads);
    runtime.parallel = reinterpret_cast<void (*)(void (*)(void*), void*, unsigned, unsigned)>(parallel);
}

uint32_t bayeswell_version() { return SOURCES; }  // a checksum of the sources, defined by the build

void bayeswell_normals(uint64_t key, float* out, int64_t n, int threads) {
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        int64_t at = first;
        for (; at + BLOCK <= last; at += BLOCK) normal_block(key, at / BLOCK, out + at);
        if (at == last) return;
        float rest[BLOCK];
        normal_block(key, at / BLOCK, rest);
        std::memcpy(out + at, rest, (last - at) * sizeof(float));
    });
}

// (draws, n) noise and weights, both null for no draws. Return the KL up to its constant.
double bayeswell_draw_and_kl(const float* mean, const float* spread, int log_std, const float* inverse_variances,
                             const int64_t* ends, int64_t sites, const float* center, const float* noise,
                             float* weights, int64_t draws, int64_t n, int threads) {
    const Gaussians g{mean, spread, log_std, inverse_variances, ends, sites, center};
    std::vector<double> parts((n + CHUNK - 1) / CHUNK, 0.0);
    in_chunks(n, threads, [&](int64_t chunk, int64_t first, int64_t last) {
        Block block;
        alignas(64) float stds[BLOCK];
        double total = 0;
        for (int64_t at = first; at < last; at += BLOCK) {
            const int64_t count = at + BLOCK < last ? BLOCK : last - at;
            block.load(g, at, count);
            total += (log_std ? block_kl<true> : block_kl<false>)(block, spread + at, stds, count);
            for (int64_t draw = 0; draw < draws; ++draw) {
                const float* fresh = noise + draw * n + at;
                float* out = weights + draw * n + at;
#pragma omp simd
                for (int64_t i = 0; i < count; ++i) out[i] = mean[at + i] + stds[i] * fresh[i];
            }
        }
        parts[chunk] = total;
    });
    double total = 0;
    for (double part : parts) total += part;
    return total;
}

void bayeswell_gradients(const float* mean, const float* spread, int log_std, const float* inverse_variances,
                         const int64_t* ends, int64_t sites, const float* center, const float* noise,
                         const float* of_weights, int64_t draws, float of_kl, float* of_mean, float* of_spread,
                         int64_t n, int threads) {
    const Gaussians g{mean, spread, log_std, inverse_variances, ends, sites, center};
    in_chunks(n, threads, [&](int64_t, int64_t first, int64_t last) {
        Block block;
        alignas(64) float sums[BLOCK], noise_sums[BLOCK];
        for (int64_t at = first; at < last; at += BLOCK) {
            const int64_t count = at + BLOCK < last ? BLOCK : last - at;
            block.load(g, at, count);
            for (int64_t i = 0; i < BLOCK; ++i) sums[i] = noise_sums[i] = 0;
            for (int64_t draw = 0; draw < draws; ++draw) {
                const float *flow = of_weights + draw * n + at, *fresh = noise + draw * n + at;
#pragma omp simd
                for (int64_t i = 0; i < count; ++i) {
                    sums[i] += flow[i];
                    noise_sums[i] += flow[i] * fresh[i];
                }
            }
            (log_std ? block_gradients<true> : block_gradients<false>)(
                block, spread + at, sums, noise_sums, of_kl, of_mean + at, of_spread + at, count);
        }
    });
}
}
