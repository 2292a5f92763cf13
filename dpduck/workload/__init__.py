"""The linear algebra of queries; knows nothing of noise.

Notation, the same in every station (single letters stand in formulas only):

| in formulas | in signatures | meaning |
|---|---|---|
| n_1..n_d, N | sizes | sizes of the attributes; N = prod n_i, never materialised |
| x | table | the exact table, in N^N |
| W, a | workload, weights | what is asked, and the weights of its squared errors |
| S, z | measurements, noisy | what is measured: z = S x + noise, integers |
| A, B | marginal, members | a set of attributes, increasing positions in the domain |
| C_A, n_A | marginal_query, cells | the marginal on A and its number of cells, prod over A of n_i |
| v_A | variance | noise variance of a cell of measured marginal A |
| U, P_U | component | an ANOVA component and its projector, kron of I - J/n_i (in U) and J/n_i (not) |
| d_U | precisions | precision of component U, divided by N; 1/d_U its variance |
| C_r, s_r | norm, weight | a group's absolute entry, and its summed recovery weight |
| m | unit_bound | most rows of one privacy unit that an answer sees |
| m_i | padded(size) | codes of attribute i in binary, the next power of two |
| b, sigma^2 | spread | scale of the discrete Laplace, parameter of the discrete Gaussian |
"""
