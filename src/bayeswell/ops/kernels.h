// Chunks and threads, exp and log in vector lanes, and normal numbers from counters.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define INLINE static inline __attribute__((always_inline))

// The OpenMP runtime that torch itself runs on, handed over by library.py: a second one would compete for the cores.
struct Runtime {
    void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);  // GOMP_parallel
    int (*thread)();                                                                      // omp_get_thread_num
    int (*threads)();                                                                     // omp_get_num_threads
};
extern Runtime runtime __attribute__((visibility("hidden")));

constexpr int64_t LANES = 128;
constexpr int64_t BLOCK = 2 * LANES;  // normals made from LANES counters: cosines first, then sines
constexpr int64_t CHUNK = 64 * BLOCK;
constexpr int64_t SERIAL = 2 * CHUNK;  // below this, starting threads takes longer than the work

// Call work(chunk, first, last) for each chunk of n numbers. Chunks have a fixed size, so results do not depend on the
// number of threads.
template <class F>
void in_chunks(int64_t n, int threads, F work) {
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
    auto run = [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) work(c, c * CHUNK, c + 1 < chunks ? (c + 1) * CHUNK : n);
    };
    if (n <= SERIAL || threads <= 1 || runtime.parallel == nullptr) return run(0, chunks);
    struct Job {
        int64_t chunks;
        decltype(run)* part;
    } job{chunks, &run};
    runtime.parallel(
        [](void* data) {
            const Job& job = *static_cast<Job*>(data);
            const int64_t team = runtime.threads(), here = runtime.thread();
            (*job.part)(job.chunks * here / team, job.chunks * (here + 1) / team);
        },
        &job, static_cast<unsigned>(threads), 0);
}

INLINE float as_float(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

INLINE int32_t as_bits(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

constexpr float TINY = 1.17549435e-38f;  // the smallest normal number

// exp(x) to about 1 ulp: 2^k exp(r) with |r| <= log(2)/2 (polynomial of Cephes). NaN stays NaN.
INLINE float exp_of(float x) {
    const float kept = x > -87.0f ? (x > 88.0f ? 88.0f : x) : -87.0f;  // NaN too: it has no nearest whole number
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
    return x < -87.0f ? 0.0f : (x > 88.0f ? INFINITY : (x == x ? value : x));
}

// log(x) to about 1 ulp for normal x > 0 (Cephes): x = 2^e (1 + m) with 1 + m from sqrt(1/2) to sqrt(2).
INLINE float log_of(float x) {
    constexpr uint32_t ROOT_OF_HALF = 0x3f3504f3u, EXPONENT = ~0x7fffffu;
    const uint32_t bits = static_cast<uint32_t>(as_bits(x)), above = bits - ROOT_OF_HALF;  // may wrap
    const float m = as_float(static_cast<int32_t>(bits - (above & EXPONENT))) - 1.0f;
    const float e = static_cast<float>(static_cast<int32_t>(above) >> 23);
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m - 0.5f;
    return (p * (m * m) + m) + 0.693147180559945f * e;
}

// SplitMix64 (Steele, Lea & Flood 2014): the number of the state key + counter * GOLDEN.
constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

INLINE uint64_t random_bits(uint64_t state) {
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// BLOCK normals (Box and Muller) from the LANES counters of one block.
INLINE void normal_block(uint64_t key, int64_t block, float* out) {
    int32_t low[LANES], high[LANES];
    // The state grows by sums: a 64-bit product for each would be three of 32 bits in vectors.
    uint64_t state = key + static_cast<uint64_t>(block * LANES) * GOLDEN;
    for (int64_t i = 0; i < LANES; ++i, state += GOLDEN) {
        const uint64_t z = random_bits(state);
        low[i] = static_cast<int32_t>(z & 0x7fffffffu);
        high[i] = static_cast<int32_t>(z >> 32);
    }
    for (int64_t i = 0; i < LANES; ++i) {
        const float uniform = static_cast<float>(low[i]) * 0x1p-31f + 0x1p-32f;  // in (0, 1]
        const float radius = std::sqrt(-2.0f * log_of(uniform));
        // The angle is high * pi / 2^31: quarter turns, and a rest of at most pi/4 either way from the low 30 bits.
        const uint32_t turned = static_cast<uint32_t>(high[i]) + 0x20000000u;  // quarters are its first two bits
        const float a = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(high[i]) << 2)) * 3.65729520e-10f;
        const float z = a * a;
        const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * (z * a) + a;
        const float polynomial = (2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f;
        const float cosine = (polynomial * z - 0.5f) * z + 1.0f;
        const bool swap = turned & 0x40000000u;
        const int32_t c = as_bits(swap ? sine : cosine), s = as_bits(swap ? cosine : sine);
        out[i] = as_float(c ^ static_cast<int32_t>((turned + 0x40000000u) & 0x80000000u)) * radius;
        out[LANES + i] = as_float(s ^ static_cast<int32_t>(turned & 0x80000000u)) * radius;
    }
}
