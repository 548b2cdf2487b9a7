// Matrix products: a weight-streaming kernel for few rows, cuBLASLt for many, a plain kernel for what neither takes.
//
// Owns: the cuBLASLt handle (opened at run time) and its plans. Threads: one at a time. Errors: without the library
// products still run, slowly; unavailable() says why. A row's last bits may depend on the number of rows (ADR 27).
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/gemv.h"
#include "kernels/ops.h"

namespace assay {

class Gemm {
 public:
  Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  // Contract: Ops::linear.
  void linear(CudaContext& context, ConstTensor x, std::span<const LinearPart> parts, bool accumulate, Tensor out);

  // One product by cuBLASLt alone; false, and nothing done, where it cannot.
  bool library_product(CudaContext& context, const LinearCall& call);

  // Why cuBLASLt is not there, as a sentence; empty where it is.
  const std::string& unavailable() const { return unavailable_; }

 private:
  struct Plan;
  using Key = std::vector<int64_t>;

  void product(CudaContext& context, const LinearCall& call);
  Plan* plan_for(const LinearCall& call);

  std::string unavailable_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace assay
