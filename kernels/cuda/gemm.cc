#include "kernels/cuda/gemm.h"

#include <dlfcn.h>

#include <cstdlib>

namespace assay {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;    // what cuBLASLt asks for on Hopper
constexpr int64_t kLibraryIsFaster = int64_t{1} << 28;  // elements of the weights: also for one row (an output head)
constexpr size_t kMaxPlans = 4096;                      // prefill chunks come in any length
constexpr const char* kLibrary = "libcublasLt.so.13";

// The entry points we use, found once in a library that stays open.
struct Library {
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtDestroy) destroy = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&::cublasLtMatmulDescInit_internal) init_desc = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&::cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
  decltype(&::cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  std::string error;  // empty: all of them are there
};

void* open_library(std::string& error) {
  const char* folder = std::getenv("CUBLASLT_FOLDER");
  std::vector<std::string> names = {kLibrary, std::string("/usr/local/cuda/lib64/") + kLibrary};
  if (folder != nullptr) names.insert(names.begin(), std::string(folder) + "/" + kLibrary);
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    if (error.empty()) error = dlerror();
  }
  return nullptr;
}

Library load_library() {
  Library library;
  std::string error;
  void* handle = open_library(error);
  if (handle == nullptr) {
    library.error = "cuBLASLt is not used: " + error + " (put its folder into CUBLASLT_FOLDER or LD_LIBRARY_PATH)";
    return library;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) library.error = std::string("cuBLASLt is not used: it has no ") + name;
  };
  find(library.create, "cublasLtCreate");
  find(library.destroy, "cublasLtDestroy");
  find(library.matmul, "cublasLtMatmul");
  find(library.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(library.init_desc, "cublasLtMatmulDescInit_internal");
  find(library.set_desc, "cublasLtMatmulDescSetAttribute");
  find(library.init_layout, "cublasLtMatrixLayoutInit_internal");
  find(library.init_preference, "cublasLtMatmulPreferenceInit_internal");
  find(library.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  return library;
}

const Library& library() {
  static const Library instance = load_library();
  return instance;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF32:
      return CUDA_R_32F;
  }
  return CUDA_R_32F;
}

// The largest power of two, at most 256, that divides the address: plans are chosen for it.
int64_t alignment_of(const void* data) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<int64_t>(address & (~address + 1));
}

// Parts whose weights and biases lie one behind the other are one larger part.
bool continues(ConstTensor first, ConstTensor second) {
  if (first.data == nullptr || second.data == nullptr) return first.data == second.data;
  const bool same = first.dtype == second.dtype && first.row_stride == second.row_stride;
  return same && first.cols == second.cols && first.row(first.rows) == second.data;
}

bool continues_bias(ConstTensor first, ConstTensor second) {
  if (first.data == nullptr || second.data == nullptr) return first.data == second.data;
  const std::byte* end = static_cast<const std::byte*>(first.data) + first.cols * dtype_bytes(first.dtype);
  return first.dtype == second.dtype && end == second.data;
}

}  // namespace

// The matrices are row major, cuBLASLt's are column major: it sees out^T [n, m] = weight^T' [n, k] x^T [k, m].
struct Gemm::Plan {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t weight, x, out;
  cublasLtMatmulAlgo_t algo;
  bool usable = false;
};

Gemm::Gemm() : unavailable_(library().error) {
  if (unavailable_.empty() && library().create(&handle_) != CUBLAS_STATUS_SUCCESS) {
    handle_ = nullptr;
    unavailable_ = "cuBLASLt is not used: it does not start on this device";
  }
}

Gemm::~Gemm() {
  if (handle_ != nullptr) library().destroy(handle_);
}

void Gemm::linear(CudaContext& context, ConstTensor x, std::span<const LinearPart> parts, bool accumulate, Tensor out) {
  std::byte* columns = static_cast<std::byte*>(out.data);
  for (size_t i = 0; i < parts.size();) {
    LinearPart part = parts[i++];
    while (i < parts.size() && continues(part.weight, parts[i].weight) && continues_bias(part.bias, parts[i].bias)) {
      part.weight.rows += parts[i].weight.rows;
      part.bias.cols += parts[i++].bias.cols;
    }
    const Tensor slice{columns, out.dtype, out.rows, part.weight.rows, out.row_stride};
    product(context, {x, part.weight, part.bias, slice, accumulate});
    columns += part.weight.rows * static_cast<int64_t>(dtype_bytes(out.dtype));
  }
}

void Gemm::product(CudaContext& context, const LinearCall& call) {
  if (call.x.rows == 0) return;
  const bool large = call.weight.rows * call.weight.cols >= kLibraryIsFaster;
  if (large && library_product(context, call)) return;
  if (gemv_fits(call)) return launch_gemv(context, call);
  if (library_product(context, call)) return;
  launch_any_product(context, call);
}

bool Gemm::library_product(CudaContext& context, const LinearCall& call) {
  if (handle_ == nullptr) return false;
  Plan* plan = plan_for(call);
  if (!plan->usable) return false;
  void* workspace = context.workspace.take(kWorkspaceBytes);
  if (workspace == nullptr) return false;
  cublasLtMatmulDescOpaque_t desc = plan->desc;
  if (call.bias && library().set_desc(&desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias.data,
                                      sizeof call.bias.data) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  const float one = 1.0f, beta = call.accumulate ? 1.0f : 0.0f;
  return library().matmul(handle_, &desc, &one, call.weight.data, &plan->weight, call.x.data, &plan->x, &beta,
                          call.out.data, &plan->out, call.out.data, &plan->out, &plan->algo, workspace, kWorkspaceBytes,
                          context.stream) == CUBLAS_STATUS_SUCCESS;
}

Gemm::Plan* Gemm::plan_for(const LinearCall& call) {
  const ConstTensor &x = call.x, &w = call.weight;
  const Tensor& out = call.out;
  Key key = {x.rows,
             w.rows,
             w.cols,
             x.row_stride,
             w.row_stride,
             out.row_stride,
             static_cast<int64_t>(x.dtype) | static_cast<int64_t>(w.dtype) << 8 |
                 static_cast<int64_t>(out.dtype) << 16 | static_cast<int64_t>(call.bias.dtype) << 24 |
                 int64_t{call.bias.data != nullptr} << 32 | int64_t{call.accumulate} << 33,
             alignment_of(x.data) | alignment_of(w.data) << 16 | alignment_of(out.data) << 32};
  if (const auto found = plans_.find(key); found != plans_.end()) return &found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  Plan& plan = plans_[std::move(key)];
  if (x.dtype != w.dtype) return &plan;

  const Library& lt = library();
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cudaDataType_t bias_type = data_type(call.bias.dtype);
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  int failures = 0;
  const auto run = [&](cublasStatus_t status) { failures += status != CUBLAS_STATUS_SUCCESS; };
  run(lt.init_desc(&plan.desc, sizeof plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  run(lt.set_desc(&plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  if (call.bias) {
    run(lt.set_desc(&plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    run(lt.set_desc(&plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias.data, sizeof call.bias.data));
    run(lt.set_desc(&plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type));
  }
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    run(lt.init_layout(&to, sizeof to, data_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                       stride));
  };
  layout(plan.weight, w.dtype, w.cols, w.rows, w.row_stride);
  layout(plan.x, x.dtype, x.cols, x.rows, x.row_stride);
  layout(plan.out, out.dtype, w.rows, x.rows, out.row_stride);

  cublasLtMatmulPreferenceOpaque_t preference;
  run(lt.init_preference(&preference, sizeof preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    run(lt.set_preference(&preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(w.data)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(x.data)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment_of(out.data)));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment_of(out.data)));
  cublasLtMatmulHeuristicResult_t choice;
  int found = 0;
  if (failures == 0 && lt.heuristic(handle_, &plan.desc, &plan.weight, &plan.x, &plan.out, &plan.out, &preference, 1,
                                    &choice, &found) == CUBLAS_STATUS_SUCCESS) {
    plan.usable = found == 1 && choice.state == CUBLAS_STATUS_SUCCESS;
    plan.algo = choice.algo;
  }
  return &plan;
}

}  // namespace assay
