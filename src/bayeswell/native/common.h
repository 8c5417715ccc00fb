// Formulas over whole weight vectors, each as one pass over memory. Eager torch makes one pass for every operation, and
// for half a million weights those passes cost more than the arithmetic.
//
// Plain C functions of float32 arrays, called through ctypes; the same formulas stand in Python next to each call, and
// tests hold the two together. Work is cut into chunks of fixed size, whatever the number of threads, and sums are added
// chunk by chunk: so results do not depend on the number of threads.
//
// Here is what all of them stand on: chunks and blocks, exp and log, and normal numbers. Every source file has it to
// itself (an unnamed namespace): loops are vectorised only where all that they call is inlined.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#define ALWAYS static inline __attribute__((always_inline))

// [first, last) block by block: [at, stop). The brace that it opens is closed by whoever uses it.
#define FOR_BLOCKS                                              \
    for (int64_t at = first; at < last; at += BLOCK) {          \
        const int64_t stop = at + BLOCK < last ? at + BLOCK : last;

// The threads of torch's own OpenMP runtime, handed over by library.py: nothing is linked that may be missing, and there is
// never a second runtime whose threads would fight with torch's for the cores. Null: everything runs on one thread.
struct Runtime {
    void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);  // GOMP_parallel
    int (*thread)();                                                                      // omp_get_thread_num
    int (*threads)();                                                                     // omp_get_num_threads
};
extern Runtime runtime __attribute__((visibility("hidden")));

namespace {

constexpr int64_t LANES = 128;        // numbers that a loop over a buffer handles at a time
constexpr int64_t BLOCK = 2 * LANES;  // normals made from LANES counters: cosines first, then sines
constexpr int64_t CHUNK = 64 * BLOCK;
constexpr int64_t SERIAL = 2 * CHUNK;  // below this starting threads takes longer than the work

// work(0) ... work(pieces - 1), on several threads if there are numbers enough. A parallel region on one thread would still
// have to be entered and left.
template <class F>
void in_parallel(int64_t pieces, int64_t numbers, int threads, F work) {
    if (numbers <= SERIAL || threads <= 1 || runtime.parallel == nullptr) {
        for (int64_t piece = 0; piece < pieces; ++piece) work(piece);
        return;
    }
    struct Job {
        int64_t pieces;
        F* work;
    } job{pieces, &work};
    runtime.parallel(
        [](void* data) {  // one stretch of pieces for each thread of the team, which may be smaller than was asked for
            const Job& mine = *static_cast<Job*>(data);
            const int64_t team = runtime.threads(), here = runtime.thread();
            const int64_t stop = mine.pieces * (here + 1) / team;
            for (int64_t piece = mine.pieces * here / team; piece < stop; ++piece) (*mine.work)(piece);
        },
        &job, static_cast<unsigned>(threads), 0);
}

template <class F>
void in_chunks(int64_t n, int threads, F work) {
    in_parallel((n + CHUNK - 1) / CHUNK, n, threads, [&](int64_t c) {
        const int64_t first = c * CHUNK;
        work(c, first, first + CHUNK < n ? first + CHUNK : n);
    });
}

// Draws that no cache holds until they are read are written around the caches: a line need not be read before it is
// written, and what the next pass wants is not pushed out. Rows begin at multiples of 64 bytes then.
constexpr int64_t MOST_CACHED = 1 << 23;  // numbers

ALWAYS bool goes_around(const float* weights, int64_t stride, int64_t numbers) {
#ifdef __SSE2__
    return numbers > MOST_CACHED && reinterpret_cast<uintptr_t>(weights) % 64 == 0 && stride % 16 == 0;
#else
    return false;
#endif
}

ALWAYS void write_around(float* to, const float* from, int64_t size) {
#ifdef __SSE2__
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= size; i += 16) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
#elif defined(__AVX__)
    for (; i + 8 <= size; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
#endif
    for (; i + 4 <= size; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    for (; i < size; ++i) to[i] = from[i];
#endif
}

// Before other threads are told that the draws are there.
ALWAYS void end_writing_around() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

template <class F>
double sum_in_chunks(int64_t n, int threads, F work) {
    std::vector<double> parts((n + CHUNK - 1) / CHUNK, 0.0);
    in_chunks(n, threads, [&](int64_t c, int64_t first, int64_t last) { parts[c] = work(first, last); });
    double total = 0;
    for (double part : parts) total += part;
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

constexpr float TINY = 1.17549435e-38f;  // the smallest normal number

// exp(x) to about 1 ulp: 2^k exp(r) with |r| <= log(2)/2 (Cephes' polynomial). NaN stays NaN.
ALWAYS float exp_of(float x) {
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

// log(x) to about 1 ulp for normal x > 0 (Cephes' polynomial): x = 2^e (1 + m) with 1 + m from sqrt(1/2) to sqrt(2).
// Of other x it is a number that means nothing.
ALWAYS float log_of(float x) {
    constexpr uint32_t ROOT_OF_HALF = 0x3f3504f3u, EXPONENT = ~0x7fffffu;
    const uint32_t bits = static_cast<uint32_t>(as_bits(x)), above = bits - ROOT_OF_HALF;  // differences that may wrap
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

ALWAYS uint64_t random_bits(uint64_t state) {
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// BLOCK normals by Box and Muller from the LANES counters of one block.
ALWAYS void normal_block(uint64_t key, int64_t block, float* out) {
    int32_t low[LANES], high[LANES];
    // The state grows by sums: a product of 64 bits for each would be three more of 32 in vectors.
    uint64_t state = key + static_cast<uint64_t>(block * LANES) * GOLDEN;
    for (int64_t i = 0; i < LANES; ++i, state += GOLDEN) {
        const uint64_t z = random_bits(state);
        low[i] = static_cast<int32_t>(z & 0x7fffffffu);
        high[i] = static_cast<int32_t>(z >> 32);
    }
    for (int64_t i = 0; i < LANES; ++i) {
        const float uniform = static_cast<float>(low[i]) * 0x1p-31f + 0x1p-32f;  // in (0, 1]
        const float radius = std::sqrt(-2.0f * log_of(uniform));
        // The angle is high * pi / 2^31: quarter turns, and a rest of at most pi/4 either way, the low 30 bits.
        const uint32_t turned = static_cast<uint32_t>(high[i]) + 0x20000000u;  // quarters are its first two bits
        const float a = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(high[i]) << 2)) * 3.65729520e-10f, z = a * a;
        const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * (z * a) + a;
        const float cosine = (((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z
                              - 0.5f) * z + 1.0f;
        const bool swap = turned & 0x40000000u;
        const int32_t c = as_bits(swap ? sine : cosine), s = as_bits(swap ? cosine : sine);
        // Signs by their bits: comparisons and choices would be three operations each.
        out[i] = as_float(c ^ static_cast<int32_t>((turned + 0x40000000u) & 0x80000000u)) * radius;
        out[LANES + i] = as_float(s ^ static_cast<int32_t>(turned & 0x80000000u)) * radius;
    }
}

// Noise of a vector of weights: given, made of a key where it is needed, or none. Number i of it is number i of the key's.
struct Noise {
    const float* given;
    bool keyed;
    uint64_t key;

    bool any() const { return given || keyed; }
};

// The noise of one piece of a vector after another, in memory that stays in the caches.
class NoiseParts {
  public:
    explicit NoiseParts(const Noise& all) : noise(all) {}

    // Those from first to last, to be read by their places in the whole vector; null if there are none.
    const float* part(int64_t first, int64_t last) {
        if (!noise.keyed) return noise.given;
        const int64_t start = first / BLOCK * BLOCK, size = (last - start + BLOCK - 1) / BLOCK * BLOCK;
        if (size > room) fresh.reset(static_cast<float*>(::operator new((room = size) * sizeof(float))));
        for (int64_t at = 0; at < size; at += BLOCK) normal_block(noise.key, (start + at) / BLOCK, fresh.get() + at);
        return fresh.get() - start;
    }

  private:
    const Noise noise;
    // Not an array's new, which asks for a newer libstdc++ than the wheel may.
    struct Delete {
        void operator()(float* memory) const { ::operator delete(memory); }
    };
    std::unique_ptr<float, Delete> fresh;
    int64_t room = 0;
};

}  // namespace
