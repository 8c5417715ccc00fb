// Steps of samplers (Langevin, Hamiltonian, preconditioned) and optimizers (AdaBound, YellowFin, IVON), in place, and the
// sums that they look at first.

#include "common.h"

namespace {

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
        in_parallel(static_cast<int64_t>(all.size()), total, threads, [&](int64_t p) { work(p, all[p]); });
    }

    // As `each`, but every thread goes through its share from the end: a pass that follows finds in the caches what it begins
    // with.
    template <class F>
    void each_from_the_end(int threads, F work) const {
        const int64_t pieces = all.size(), shares = threads > 1 ? threads : 1;
        in_parallel(shares, total, threads, [&](int64_t s) {
            for (int64_t p = pieces * (s + 1) / shares; p-- > pieces * s / shares;) work(p, all[p]);
        });
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
    // Long blocks: adding up the lanes of two sums takes as long as a short block itself.
    for (int64_t at = first; at < last; at += 8 * BLOCK) {
        const int64_t stop = at + 8 * BLOCK < last ? at + 8 * BLOCK : last;
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
    float ess, rate, gain1, correction, clip, lr, gain2, unbias, damping;
};

template <bool DAMPED>
void newton_step(float* mean, const float* of_mean, float* log_std, const float* of_log_std, float* precision,
                 float* momentum, const float* decay, const float* scale, float* squares, NewtonNumbers by, int64_t first,
                 int64_t last) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) {
        const float before = precision[i];
        const float change = (decay[i] / before + by.ess * of_log_std[i] - 1.0f) * by.rate;
        const float h = before * (0.5f * (change * change) + change + 1.0f);
        const float m = momentum[i] + by.gain1 * (of_mean[i] - momentum[i]);
        float below = h;
        if (DAMPED) {
            const float off = of_mean[i] - m / by.correction;
            const float v = squares[i] + by.gain2 * (off * off - squares[i]);
            squares[i] = v;
            below += by.damping * std::sqrt(v * by.unbias);
        }
        float move = (m / by.correction + decay[i] * mean[i]) / below;
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
    pieces.each_from_the_end(threads, [&](int64_t index, Piece p) {
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
                           float* momentum, const float* decay, const float* scale, float* squares, float ess, float rate,
                           float gain1, float correction, float clip, float lr, float gain2, float unbias, float damping,
                           int64_t n, int threads) {
    const NewtonNumbers by = {ess, rate, gain1, correction, clip, lr, gain2, unbias, damping};
    auto work = squares ? newton_step<true> : newton_step<false>;
    in_chunks(n, threads, [=](int64_t, int64_t first, int64_t last) {
        work(mean, of_mean, log_std, of_log_std, precision, momentum, decay, scale, squares, by, first, last);
    });
}
}
