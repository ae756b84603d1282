/* One sweep of sequential collapsed Gibbs sampling for Beta-Dir: the yardstick of `nbmf bench`.
 *
 * Plain C that a compiler vectorises: counters component-minor, K padded to a multiple of 16, the
 * inverse CDF in two levels (16 interleaved sums, then the members of one of them), float32.
 * A running sum over all K components instead would be three times slower.
 */
#include <stddef.h>
#include <stdint.h>

#define LANES 16

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* xoshiro256++ by Blackman and Vigna, written from its definition; top 24 bits as a float. */
static float uniform(uint64_t *s) {
    uint64_t result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return (float)(result >> 40) * 0x1p-24f;
}

/* L is (F, P), A and B are (N, P), V and Z are (F, N); gamma is 0 in the padding. */
void sweep(int F, int N, int P, const uint8_t *V, uint16_t *Z, float *L, float *A, float *B,
           const float *gamma, const float *alpha, const float *beta, uint64_t *random) {
    float weight[P] __attribute__((aligned(64)));
    for (int f = 0; f < F; f++) {
        float *l = L + (size_t)f * P;
        for (int n = 0; n < N; n++) {
            size_t cell = (size_t)f * N + n;
            float *a = A + (size_t)n * P, *b = B + (size_t)n * P;
            float *match = V[cell] ? a : b;
            const float *prior = V[cell] ? alpha : beta;
            l[Z[cell]] -= 1;
            match[Z[cell]] -= 1;

            float sums[LANES] = {0};
            for (int i = 0; i < P; i += LANES)
                for (int j = 0; j < LANES; j++) {
                    int k = i + j;
                    float w = (gamma[k] + l[k]) * (prior[k] + match[k]) /
                              (alpha[k] + beta[k] + a[k] + b[k]);
                    weight[k] = w;
                    sums[j] += w;
                }
            for (int j = 1; j < LANES; j++) sums[j] += sums[j - 1];

            float target = uniform(random) * sums[LANES - 1];
            int j = 0;
            while (j < LANES - 1 && sums[j] <= target) j++;
            if (j) target -= sums[j - 1];
            float sum = weight[j];
            int k = j;
            while (sum <= target && k + LANES < P) {
                k += LANES;
                sum += weight[k];
            }
            l[k] += 1;
            match[k] += 1;
            Z[cell] = (uint16_t)k;
        }
    }
}
