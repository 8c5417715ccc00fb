// The element-wise part of an LSTM (layers/recurrent.py), of one time step, and of all at once where nothing recurs: each
// is one pass over memory. Gates lie in rows of i, f, g and o, and the states of a step behind those of the step before.

#include "common.h"

namespace {

ALWAYS float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

// To about 1 ulp: Cephes' polynomial near 0, where the other form would lose digits. NaN stays NaN.
ALWAYS float tanh_of(float x) {
    const float size = std::fabs(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const float near = p * z * x + x, far = std::copysign(1.0f - 2.0f / (exp_of(2.0f * size) + 1.0f), x);
    return size < 0.625f ? near : far;
}

// Where the steps lie: `batch` rows of `width` numbers, `steps` times one behind the other.
struct Steps {
    int64_t steps, width, batch;

    Steps(int64_t steps_, int64_t width_, int64_t n) : steps(steps_), width(width_), batch(n / steps_ / width_) {}

    int64_t row(int64_t t, int64_t r) const { return (t * batch + r) * width; }

    // The cell that step t begins with.
    const float* before(const float* first, const float* cells, int64_t t, int64_t r) const {
        return t ? cells + row(t - 1, r) : first + row(0, r);
    }

    bool has(int64_t t) const { return batch > 0 && t >= 0 && t < steps; }

    template <class F>
    void each_row(int threads, F work) const {
        in_parallel(batch, 4 * batch * width, threads, work);
    }
};

// One row of all that the tangents meet.
struct Tangents {
    const float *gates, *before, *tanh, *p, *q, *moved, *moved_before, *moved_cell;
};

// The slope of a gate's own slope is 1 - 2 s of a sigmoid's, -2 g of a tanh's; `b` holds what it is to be multiplied by.
template <bool given>
void second_derivatives(const Tangents& of, int64_t width, const float* of_gates, float* b, float* by_cell) {
    const float *i = of.gates, *f = i + width, *g = f + width, *o = g + width;
    const float *m_i = of.moved, *m_g = m_i + 2 * width, *m_o = m_g + width;
    const float* x = given ? of_gates : of.gates;  // read only where they are given
    const float *x_i = x, *x_f = x_i + width, *x_g = x_f + width, *x_o = x_g + width;
    const float *before = of.before, *tanh = of.tanh, *p = of.p, *q = of.q;
    const float *moved_before = of.moved_before, *moved_cell = of.moved_cell;
    float *b_i = b, *b_f = b_i + width, *b_g = b_f + width, *b_o = b_g + width;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
        const float closed = (1.0f - tanh[j] * tanh[j]) * p[j], change = moved_cell[j];
        const float d_i = q[j] * g[j] + (given ? x_i[j] : 0.0f), d_f = q[j] * before[j] + (given ? x_f[j] : 0.0f);
        const float d_g = q[j] * i[j] + (given ? x_g[j] : 0.0f), d_o = p[j] * tanh[j] + (given ? x_o[j] : 0.0f);
        b_i[j] = b_i[j] * (1.0f - 2.0f * i[j]) * d_i + q[j] * m_g[j];
        b_f[j] = b_f[j] * (1.0f - 2.0f * f[j]) * d_f + q[j] * moved_before[j];
        b_g[j] = b_g[j] * (-2.0f * g[j]) * d_g + q[j] * m_i[j];
        b_o[j] = b_o[j] * (1.0f - 2.0f * o[j]) * d_o + closed * change;
        by_cell[j] = closed * (m_o[j] - 2.0f * tanh[j] * o[j] * change);
    }
}

}  // namespace

extern "C" {

// Gates from what goes into them, in its place; c = f c_before + i g, h = o tanh c.
void bayeswell_lstm_step(int64_t t, int64_t steps, int64_t width, const float* first, float* gates, float* cells,
                         float* states, int64_t n, int threads) {
    if (n <= 0) return;
    const Steps at(steps, width, n);
    if (!at.has(t)) return;
    at.each_row(threads, [&](int64_t r) {
        float *i = gates + 4 * at.row(t, r), *f = i + width, *g = f + width, *o = g + width;
        float *c = cells + at.row(t, r), *h = states + at.row(t, r);
        const float* before = at.before(first, cells, t, r);
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            i[j] = sigmoid_of(i[j]);
            f[j] = sigmoid_of(f[j]);
            g[j] = tanh_of(g[j]);
            o[j] = sigmoid_of(o[j]);
            c[j] = f[j] * before[j] + i[j] * g[j];
            h[j] = o[j] * tanh_of(c[j]);
        }
    });
}

// p has what later steps give to the state; q and the gradient of what goes into the gates follow, and tanh c.
void bayeswell_lstm_step_backward(int64_t t, int64_t steps, int64_t width, const float* first, const float* gates,
                                  const float* cells, const float* of_states, const float* of_cells,
                                  const float* of_gates, float* tanh, float* p, float* q, float* of_x, int64_t n,
                                  int threads) {
    if (n <= 0) return;
    const Steps at(steps, width, n);
    if (!at.has(t)) return;
    at.each_row(threads, [&](int64_t r) {
        const int64_t here = at.row(t, r), later = here + at.batch * width;
        const float *i = gates + 4 * here, *f = i + width, *g = f + width, *o = g + width;
        const float *c = cells + here, *before = at.before(first, cells, t, r);
        float *own_p = p + here, *own_q = q + here, *own_tanh = tanh + here;
        if (of_states)
            for (int64_t j = 0; j < width; ++j) own_p[j] += of_states[here + j];
        if (t + 1 < steps) {
            const float* next_f = gates + 4 * later + width;
            for (int64_t j = 0; j < width; ++j) own_q[j] = q[later + j] * next_f[j];
        } else {
            for (int64_t j = 0; j < width; ++j) own_q[j] = 0.0f;
        }
        if (of_cells)
            for (int64_t j = 0; j < width; ++j) own_q[j] += of_cells[here + j];
        float *x_i = of_x + 4 * here, *x_f = x_i + width, *x_g = x_f + width, *x_o = x_g + width;
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            const float bent = tanh_of(c[j]);
            own_tanh[j] = bent;
            const float q_j = own_q[j] + own_p[j] * (o[j] * (1.0f - bent * bent));
            own_q[j] = q_j;
            x_i[j] = q_j * g[j];
            x_f[j] = q_j * before[j];
            x_g[j] = q_j * i[j];
            x_o[j] = own_p[j] * bent;
        }
        if (of_gates)
            for (int64_t j = 0; j < 4 * width; ++j) x_i[j] += of_gates[4 * here + j];
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            x_i[j] *= i[j] * (1.0f - i[j]);
            x_f[j] *= f[j] * (1.0f - f[j]);
            x_g[j] *= 1.0f - g[j] * g[j];
            x_o[j] *= o[j] * (1.0f - o[j]);
        }
    });
}

// The tangents of gates, cell and state from that of what goes into the gates.
void bayeswell_lstm_step_tangents(int64_t t, int64_t steps, int64_t width, const float* first, const float* gates,
                                  const float* cells, const float* tanh, const float* first_moved, const float* along,
                                  float* moved, float* moved_cells, float* moved_states, int64_t n, int threads) {
    if (n <= 0) return;
    const Steps at(steps, width, n);
    if (!at.has(t)) return;
    at.each_row(threads, [&](int64_t r) {
        const int64_t here = at.row(t, r);
        const float *i = gates + 4 * here, *f = i + width, *g = f + width, *o = g + width, *bent = tanh + here;
        const float *a_i = along + 4 * here, *a_f = a_i + width, *a_g = a_f + width, *a_o = a_g + width;
        const float *before = at.before(first, cells, t, r), *moved_before = at.before(first_moved, moved_cells, t, r);
        float *to_i = moved + 4 * here, *to_f = to_i + width, *to_g = to_f + width, *to_o = to_g + width;
        float *to_cell = moved_cells + here, *to_state = moved_states + here;
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            to_i[j] = a_i[j] * (i[j] * (1.0f - i[j]));
            to_f[j] = a_f[j] * (f[j] * (1.0f - f[j]));
            to_g[j] = a_g[j] * (1.0f - g[j] * g[j]);
            to_o[j] = a_o[j] * (o[j] * (1.0f - o[j]));
            to_cell[j] = f[j] * moved_before[j] + before[j] * to_f[j] + g[j] * to_i[j] + i[j] * to_g[j];
            to_state[j] = o[j] * (1.0f - bent[j] * bent[j]) * to_cell[j] + bent[j] * to_o[j];
        }
    });
}

// What the tangents give to gates (in the place of `along`) and cells, of all steps.
void bayeswell_lstm_second_derivatives(int64_t steps, int64_t width, const float* first, const float* gates,
                                       const float* cells, const float* tanh, const float* p, const float* q,
                                       const float* first_moved, const float* moved, const float* moved_cells,
                                       const float* of_gates, float* along, float* by_cells, int64_t n, int threads) {
    if (n <= 0) return;
    const Steps at(steps, width, n);
    in_parallel(at.steps * at.batch, 4 * n, threads, [&](int64_t all) {
        const int64_t t = all / at.batch, r = all % at.batch, here = at.row(t, r), later = here + at.batch * width;
        const Tangents of{
            gates + 4 * here, at.before(first, cells, t, r), tanh + here, p + here, q + here,
            moved + 4 * here, at.before(first_moved, moved_cells, t, r), moved_cells + here,
        };
        float* own = by_cells + here;
        if (of_gates)
            second_derivatives<true>(of, width, of_gates + 4 * here, along + 4 * here, own);
        else
            second_derivatives<false>(of, width, nullptr, along + 4 * here, own);
        if (t + 1 < steps) {
            const float* next_f = moved + 4 * later + width;
            for (int64_t j = 0; j < width; ++j) own[j] += q[later + j] * next_f[j];
        }
    });
}

}  // extern "C"
