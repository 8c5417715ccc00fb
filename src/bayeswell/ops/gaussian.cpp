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

// One block of weights: s, h and m - z, in memory that stays in the nearest cache.
struct Block {
    float std[BLOCK], inverse_variance[BLOCK], offset[BLOCK];
    int64_t site = 0;

    void load(const Gaussians& g, int64_t at, int64_t count) {
        const float *mean = g.mean + at, *spread = g.spread + at;
        if (g.log_std)
            for (int64_t i = 0; i < count; ++i) std[i] = exp_of(spread[i]);
        else
            std::memcpy(std, spread, count * sizeof(float));
        if (g.center)
            for (int64_t i = 0; i < count; ++i) offset[i] = mean[i] - g.center[at + i];
        else
            std::memcpy(offset, mean, count * sizeof(float));
        load_inverse_variances(g, at, count);
    }

    void load_inverse_variances(const Gaussians& g, int64_t at, int64_t count) {
        if (!g.sites) {
            std::memcpy(inverse_variance, g.inverse_variances + at, count * sizeof(float));
            return;
        }
        for (int64_t i = 0; i < count;) {
            while (site + 1 < g.sites && g.ends[site] <= at + i) ++site;
            const int64_t end = site + 1 < g.sites ? g.ends[site] - at : count, stop = end < count ? end : count;
            const float value = g.inverse_variances[site];
            for (; i < stop; ++i) inverse_variance[i] = value;
        }
    }
};

// sum h ((m - z)^2 + s^2) / 2 - log s
static float block_kl(const Block& b, const float* spread, int log_std, int64_t count) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; ++i)
        total += 0.5f * b.inverse_variance[i] * (b.offset[i] * b.offset[i] + b.std[i] * b.std[i]);
    if (log_std) {
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < count; ++i) total -= spread[i];
    } else {
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < count; ++i) total -= log_of(spread[i] < TINY ? TINY : spread[i]);
    }
    return total;
}

// d/dm = g + c h (m - z), d/ds = g eps + c (h s - 1/s), d/dlog s = s d/ds, for gradients g of draws and c of the KL.
static void block_gradients(const Block& b, int log_std, const float* noise, const float* of_weights, int64_t draws,
                            int64_t stride, float of_kl, float* of_mean, float* of_spread, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const float flow = of_kl * b.inverse_variance[i];
        of_mean[i] = flow * b.offset[i];
        of_spread[i] = flow * b.std[i];
    }
    for (int64_t draw = 0; draw < draws; ++draw, noise += stride, of_weights += stride)
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
            of_mean[i] += of_weights[i];
            of_spread[i] += of_weights[i] * noise[i];
        }
    if (log_std)
        for (int64_t i = 0; i < count; ++i) of_spread[i] = of_spread[i] * b.std[i] - of_kl;
    else
        for (int64_t i = 0; i < count; ++i) of_spread[i] -= b.std[i] < TINY ? 0.0f : of_kl / b.std[i];
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
        double total = 0;
        for (int64_t at = first; at < last; at += BLOCK) {
            const int64_t count = at + BLOCK < last ? BLOCK : last - at;
            block.load(g, at, count);
            total += block_kl(block, spread + at, log_std, count);
            for (int64_t draw = 0; draw < draws; ++draw) {
                const float* fresh = noise + draw * n + at;
                float* out = weights + draw * n + at;
#pragma omp simd
                for (int64_t i = 0; i < count; ++i) out[i] = mean[at + i] + block.std[i] * fresh[i];
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
        for (int64_t at = first; at < last; at += BLOCK) {
            const int64_t count = at + BLOCK < last ? BLOCK : last - at;
            block.load(g, at, count);
            block_gradients(block, log_std, noise + at, of_weights + at, draws, n, of_kl, of_mean + at,
                            of_spread + at, count);
        }
    });
}
}
