// NUTS on a network of one hidden layer of tanh, whitened weights, in double precision.
//
// The sampler is Stan's: multinomial choice along the trajectory (Betancourt 2017), its U-turn criterion with the two
// extra checks across subtrees, dual averaging of the step size to a mean acceptance of 0.9, a diagonal mass matrix from
// windows of the warm-up. `nuts <problem> <draws>` is called by make_references.py, which writes the problem and reads
// the draws: both are plain numbers in native order, see `main`.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

using Vector = std::vector<double>;

namespace {

constexpr int MOST_DOUBLINGS = 10;
constexpr double TARGET = 0.9, DIVERGENT = 1000;
constexpr double NOTHING = -1e300;  // the logarithm of zero, finite for -ffast-math, which vectorises exp

struct Problem {
    int64_t inputs, hidden, outputs, examples;
    double noise;             // 0: a classifier
    Vector x, y, scale;       // x by input, then example; y by output, then example (a class number for classifiers)
    int64_t size() const { return hidden * (inputs + 1) + outputs * (hidden + 1); }
};

// U = -log p(y | scale * white) + |white|^2 / 2, and its gradient.
double potential(const Problem& p, const Vector& white, Vector& gradient) {
    const int64_t n = p.examples, first = p.inputs * p.hidden, second = first + p.hidden;
    const int64_t last = second + p.hidden * p.outputs;
    static thread_local Vector weights, h, f, d;
    weights.resize(p.size()), h.resize(p.hidden * n), f.resize(p.outputs * n), d.resize(p.hidden * n);
    double u = 0;
    for (size_t i = 0; i < white.size(); ++i) weights[i] = p.scale[i] * white[i], u += 0.5 * white[i] * white[i];
    for (int64_t j = 0; j < p.hidden; ++j)
        for (int64_t e = 0; e < n; ++e) h[j * n + e] = weights[first + j];
    int64_t i = 0;
    for (; i + 4 <= p.inputs; i += 4)  // four at once: a quarter of the traffic with h
        for (int64_t j = 0; j < p.hidden; ++j) {
            const double *w = &weights[j * p.inputs + i], *x = &p.x[i * n];
            const double a = w[0], b = w[1], c = w[2], g = w[3];
            double* to = &h[j * n];
            for (int64_t e = 0; e < n; ++e) to[e] += a * x[e] + b * x[n + e] + c * x[2 * n + e] + g * x[3 * n + e];
        }
    for (; i < p.inputs; ++i)
        for (int64_t j = 0; j < p.hidden; ++j) {
            const double w = weights[j * p.inputs + i];
            for (int64_t e = 0; e < n; ++e) h[j * n + e] += w * p.x[i * n + e];
        }
    for (double& value : h) value = 1 - 2 / (std::exp(2 * value) + 1);
    for (int64_t k = 0; k < p.outputs; ++k) {
        double* out = &f[k * n];
        for (int64_t e = 0; e < n; ++e) out[e] = weights[last + k];
        for (int64_t j = 0; j < p.hidden; ++j) {
            const double w = weights[second + k * p.hidden + j];
            for (int64_t e = 0; e < n; ++e) out[e] += w * h[j * n + e];
        }
    }
    if (p.noise > 0) {
        const double inverse = 1 / (p.noise * p.noise);
        for (int64_t e = 0; e < n * p.outputs; ++e) {
            const double off = f[e] - p.y[e];
            u += 0.5 * inverse * off * off;
            f[e] = inverse * off;
        }
    } else {
        for (int64_t e = 0; e < n; ++e) {
            double most = f[e], sum = 0;
            const int64_t label = static_cast<int64_t>(p.y[e]);
            for (int64_t k = 1; k < p.outputs; ++k) most = std::max(most, f[k * n + e]);
            const double chosen = f[label * n + e] - most;
            for (int64_t k = 0; k < p.outputs; ++k) sum += f[k * n + e] = std::exp(f[k * n + e] - most);
            u += std::log(sum) - chosen;
            for (int64_t k = 0; k < p.outputs; ++k) f[k * n + e] = f[k * n + e] / sum - (k == label);
        }
    }
    for (int64_t k = 0; k < p.outputs; ++k) {
        double sum = 0;
        for (int64_t e = 0; e < n; ++e) sum += f[k * n + e];
        gradient[last + k] = sum;
        for (int64_t j = 0; j < p.hidden; ++j) {
            double dot = 0;
            for (int64_t e = 0; e < n; ++e) dot += f[k * n + e] * h[j * n + e];
            gradient[second + k * p.hidden + j] = dot;
        }
    }
    for (int64_t j = 0; j < p.hidden; ++j) {
        double* of = &d[j * n];
        for (int64_t e = 0; e < n; ++e) of[e] = 0;
        for (int64_t k = 0; k < p.outputs; ++k) {
            const double w = weights[second + k * p.hidden + j];
            for (int64_t e = 0; e < n; ++e) of[e] += w * f[k * n + e];
        }
        double sum = 0;
        for (int64_t e = 0; e < n; ++e) of[e] *= 1 - h[j * n + e] * h[j * n + e], sum += of[e];
        gradient[first + j] = sum;
    }
    for (i = 0; i + 4 <= p.inputs; i += 4)
        for (int64_t j = 0; j < p.hidden; ++j) {
            const double *of = &d[j * n], *x = &p.x[i * n];
            double one = 0, two = 0, three = 0, four = 0;
            for (int64_t e = 0; e < n; ++e) {
                one += of[e] * x[e], two += of[e] * x[n + e];
                three += of[e] * x[2 * n + e], four += of[e] * x[3 * n + e];
            }
            double* to = &gradient[j * p.inputs + i];
            to[0] = one, to[1] = two, to[2] = three, to[3] = four;
        }
    for (; i < p.inputs; ++i)
        for (int64_t j = 0; j < p.hidden; ++j) {
            double dot = 0;
            for (int64_t e = 0; e < n; ++e) dot += d[j * n + e] * p.x[i * n + e];
            gradient[j * p.inputs + i] = dot;
        }
    for (size_t i = 0; i < white.size(); ++i) gradient[i] = gradient[i] * p.scale[i] + white[i];
    return u;
}

struct Point {
    Vector q, p, g;
    double u = 0;
};

double log_add(double a, double b) {
    const double most = std::max(a, b), least = std::min(a, b);
    return most + std::log1p(std::exp(least - most));
}

double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

class Chain {
  public:
    Chain(const Problem& problem, uint64_t seed) : problem_(problem), random_(seed), inverse_mass_(problem.size(), 1.0) {
        at_.q.resize(problem.size()), at_.p.resize(problem.size()), at_.g.resize(problem.size());
        for (double& q : at_.q) q = normal_(random_);
        at_.u = potential(problem_, at_.q, at_.g);
    }

    void warm_up(int64_t steps) {
        // The first window finds the place, those after it the scales, the last the step size alone.
        const std::vector<int64_t> ends = {steps / 5, steps * 3 / 10, steps / 2, steps * 17 / 20};
        size_t window = 0;
        int64_t count = 0;
        Vector mean(at_.q.size()), squares(at_.q.size());
        restart_step_size();
        for (int64_t step = 0; step < steps; ++step) {
            move();
            adapt_step_size();
            if (window > 0 && window < ends.size()) {
                ++count;
                for (size_t i = 0; i < mean.size(); ++i) {
                    const double away = at_.q[i] - mean[i];
                    mean[i] += away / count;
                    squares[i] += away * (at_.q[i] - mean[i]);
                }
            }
            if (window < ends.size() && step + 1 == ends[window]) {
                if (count > 1) {
                    const double n = static_cast<double>(count);
                    for (size_t i = 0; i < mean.size(); ++i)
                        inverse_mass_[i] = n / (n + 5) * squares[i] / (n - 1) + 1e-3 * 5 / (n + 5);
                    restart_step_size();
                }
                count = 0, mean.assign(mean.size(), 0), squares.assign(mean.size(), 0), ++window;
            }
        }
        step_size_ = std::exp(log_average_);
    }

    void move() {
        for (size_t i = 0; i < at_.p.size(); ++i) at_.p[i] = normal_(random_) / std::sqrt(inverse_mass_[i]);
        const double start = energy(at_);
        Point ahead = at_, behind = at_, sample = at_, proposed = at_;
        Vector rho = at_.p, p_ahead = at_.p, p_behind = at_.p;  // momenta at the inner ends of the last two subtrees
        Vector fast = velocity(at_.p), sharp_ahead = fast, sharp_behind = fast;
        Vector sharp_inner_ahead = fast, sharp_inner_behind = fast, p_inner_ahead = at_.p, p_inner_behind = at_.p;
        double log_weight = 0;
        leaps = 0, divergent = false;
        double acceptance = 0;
        const size_t size = rho.size();
        for (int depth = 0; depth < MOST_DOUBLINGS; ++depth) {
            Vector rho_ahead(size, 0.0), rho_behind(size, 0.0);
            double log_subtree = NOTHING;
            bool valid;
            if (uniform_(random_) > 0.5) {
                rho_behind = rho, p_inner_behind = p_ahead, sharp_inner_behind = sharp_ahead;
                valid = tree(depth, ahead, proposed, sharp_inner_ahead, sharp_ahead, rho_ahead, p_inner_ahead, p_ahead, start,
                             1, log_subtree, acceptance);
            } else {
                rho_ahead = rho, p_inner_ahead = p_behind, sharp_inner_ahead = sharp_behind;
                valid = tree(depth, behind, proposed, sharp_inner_behind, sharp_behind, rho_behind, p_inner_behind, p_behind,
                             start, -1, log_subtree, acceptance);
            }
            if (!valid) break;
            if (log_subtree > log_weight || uniform_(random_) < std::exp(log_subtree - log_weight)) sample = proposed;
            log_weight = log_add(log_weight, log_subtree);
            for (size_t i = 0; i < size; ++i) rho[i] = rho_ahead[i] + rho_behind[i];
            bool goes_on = straight(sharp_behind, sharp_ahead, rho);
            goes_on = goes_on && straight(sharp_behind, sharp_inner_ahead, sum(rho_behind, p_inner_ahead));
            goes_on = goes_on && straight(sharp_inner_behind, sharp_ahead, sum(rho_ahead, p_inner_behind));
            if (!goes_on) break;
        }
        at_ = sample;
        mean_acceptance_ = acceptance / static_cast<double>(leaps);
        end_energy = energy(at_);
    }

    const Vector& weights() const { return at_.q; }
    int64_t leaps = 0;
    bool divergent = false;
    double end_energy = 0;

  private:
    bool tree(int depth, Point& z, Point& proposed, Vector& sharp_first, Vector& sharp_last, Vector& rho, Vector& p_first,
              Vector& p_last, double start, double sign, double& log_weight, double& acceptance) {
        const size_t size = rho.size();
        if (depth == 0) {
            leap(z, sign * step_size_);
            ++leaps;
            const double now = energy(z);
            if (now - start > DIVERGENT) divergent = true;
            log_weight = log_add(log_weight, start - now);
            acceptance += start - now > 0 ? 1 : std::exp(start - now);
            proposed = z, p_first = p_last = z.p;
            sharp_first = sharp_last = velocity(z.p);
            for (size_t i = 0; i < size; ++i) rho[i] += z.p[i];
            return !divergent;
        }
        double log_one = NOTHING, log_other = NOTHING;
        Vector p_one(size), sharp_one(size), rho_one(size, 0.0);
        if (!tree(depth - 1, z, proposed, sharp_first, sharp_one, rho_one, p_first, p_one, start, sign, log_one, acceptance))
            return false;
        Point second = z;
        Vector p_other(size), sharp_other(size), rho_other(size, 0.0);
        if (!tree(depth - 1, z, second, sharp_other, sharp_last, rho_other, p_other, p_last, start, sign, log_other,
                  acceptance))
            return false;
        const double log_both = log_add(log_one, log_other);
        log_weight = log_add(log_weight, log_both);
        if (uniform_(random_) < std::exp(log_other - log_both)) proposed = second;
        const Vector both = sum(rho_one, rho_other);
        for (size_t i = 0; i < size; ++i) rho[i] += both[i];
        return straight(sharp_first, sharp_last, both) && straight(sharp_first, sharp_other, sum(rho_one, p_other)) &&
               straight(sharp_one, sharp_last, sum(rho_other, p_one));
    }

    void leap(Point& z, double step) const {
        for (size_t i = 0; i < z.q.size(); ++i) {
            z.p[i] -= 0.5 * step * z.g[i];
            z.q[i] += step * inverse_mass_[i] * z.p[i];
        }
        z.u = potential(problem_, z.q, z.g);
        for (size_t i = 0; i < z.q.size(); ++i) z.p[i] -= 0.5 * step * z.g[i];
    }

    double energy(const Point& z) const {
        double kinetic = 0;
        for (size_t i = 0; i < z.p.size(); ++i) kinetic += 0.5 * inverse_mass_[i] * z.p[i] * z.p[i];
        return z.u + kinetic;
    }

    Vector velocity(const Vector& p) const {
        Vector found(p.size());
        for (size_t i = 0; i < p.size(); ++i) found[i] = inverse_mass_[i] * p[i];
        return found;
    }

    static Vector sum(const Vector& a, const Vector& b) {
        Vector found(a.size());
        for (size_t i = 0; i < a.size(); ++i) found[i] = a[i] + b[i];
        return found;
    }

    static bool straight(const Vector& first, const Vector& last, const Vector& rho) {
        return dot(first, rho) > 0 && dot(last, rho) > 0;
    }

    // Nesterov's dual averaging as in Hoffman & Gelman 2014, section 3.2.
    void restart_step_size() {
        centre_ = std::log(10 * step_size_), bar_ = 0, log_average_ = 0, adapted_ = 0;
    }

    void adapt_step_size() {
        ++adapted_;
        const double eta = 1 / (adapted_ + 10.0), weight = std::pow(adapted_, -0.75);
        bar_ = (1 - eta) * bar_ + eta * (TARGET - mean_acceptance_);
        const double log_step = centre_ - bar_ * std::sqrt(static_cast<double>(adapted_)) / 0.05;
        log_average_ = (1 - weight) * log_average_ + weight * log_step;
        step_size_ = std::exp(log_step);
    }

    const Problem& problem_;
    std::mt19937_64 random_;
    std::normal_distribution<double> normal_;
    std::uniform_real_distribution<double> uniform_;
    Vector inverse_mass_;
    Point at_;
    double step_size_ = 1e-3, mean_acceptance_ = 0, centre_ = 0, bar_ = 0, log_average_ = 0;
    int64_t adapted_ = 0;
};

}  // namespace

// Problem: inputs, hidden, outputs, examples, seed, chain, warm-up, draws, thinning (int64), noise, x, y, scale (double).
// Draws: for each kept one its weights; then for every draw energy, divergent, leapfrog steps (all double).
int main(int count, char** arguments) {
    if (count != 3) return std::fprintf(stderr, "nuts <problem> <draws>\n"), 2;
    std::FILE* file = std::fopen(arguments[1], "rb");
    if (!file) return std::fprintf(stderr, "nuts: cannot read %s\n", arguments[1]), 2;
    int64_t head[9];
    Problem problem;
    if (std::fread(head, sizeof(int64_t), 9, file) != 9) return 2;
    problem.inputs = head[0], problem.hidden = head[1], problem.outputs = head[2], problem.examples = head[3];
    problem.x.resize(head[0] * head[3]), problem.y.resize((problem.noise = 0, 0));
    auto read = [&](double* to, size_t n) { return std::fread(to, sizeof(double), n, file) == n; };
    if (!read(&problem.noise, 1)) return 2;
    problem.y.resize(problem.noise > 0 ? head[2] * head[3] : head[3]), problem.scale.resize(problem.size());
    if (!read(problem.x.data(), problem.x.size()) || !read(problem.y.data(), problem.y.size()) ||
        !read(problem.scale.data(), problem.scale.size()))
        return std::fprintf(stderr, "nuts: %s is too short\n", arguments[1]), 2;
    std::fclose(file);
    std::FILE* out = std::fopen(arguments[2], "wb");
    if (!out) return std::fprintf(stderr, "nuts: cannot write %s\n", arguments[2]), 2;
    std::seed_seq seeds{head[4], head[5]};
    std::vector<uint32_t> words(2);
    seeds.generate(words.begin(), words.end());
    Chain chain(problem, (static_cast<uint64_t>(words[0]) << 32) | words[1]);
    chain.warm_up(head[6]);
    Vector told;
    for (int64_t draw = 0; draw < head[7]; ++draw) {
        chain.move();
        told.insert(told.end(), {chain.end_energy, double(chain.divergent), double(chain.leaps)});
        if ((draw + 1) % head[8] == 0) std::fwrite(chain.weights().data(), sizeof(double), problem.size(), out);
    }
    std::fwrite(told.data(), sizeof(double), told.size(), out);
    return std::fclose(out);
}
