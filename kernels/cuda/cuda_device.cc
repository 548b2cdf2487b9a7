#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_ops.h"

namespace assay {
namespace {

constexpr int kRequiredMajor = 9;  // the kernels are built for sm_90a

class CudaDevice final : public Device {
 public:
  // False where a call failed.
  bool init() {
    cudaDeviceProp properties;
    if (cudaSetDevice(0) != cudaSuccess || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return false;
    name_ = properties.name;
    total_bytes_ = properties.totalGlobalMem;
    context_.num_multiprocessors = properties.multiProcessorCount;
    context_.max_shared_bytes_per_block = properties.sharedMemPerBlockOptin;
    return cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking) == cudaSuccess;
  }
  ~CudaDevice() override {
    if (context_.stream != nullptr) cudaStreamDestroy(context_.stream);
  }

  std::string description() const override {
    return "cuda (" + name_ + ", " + std::to_string(total_bytes_ >> 30) + " GiB)";
  }

  void* allocate(size_t bytes, MemoryKind kind) override {
    void* data = nullptr;
    const cudaError_t error = kind == MemoryKind::kDevice ? cudaMalloc(&data, bytes) : cudaMallocHost(&data, bytes);
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // out of memory is the caller's to tell; it breaks nothing
      return nullptr;
    }
    context_.check(cudaMemsetAsync(data, 0, bytes, context_.stream));
    return data;
  }

  void release(void* data, size_t, MemoryKind kind) override {
    context_.check(kind == MemoryKind::kDevice ? cudaFree(data) : cudaFreeHost(data));
  }

  KernelError copy_to_device(void* device, const void* host, size_t bytes) override {
    context_.side.join(context_);
    context_.check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, context_.stream));
    return error();
  }

  KernelError copy_to_host(void* host, const void* device, size_t bytes) override {
    context_.side.join(context_);
    context_.check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, context_.stream));
    return synchronize();
  }

  KernelError synchronize() override {
    context_.side.join(context_);
    context_.check(cudaStreamSynchronize(context_.stream));
    return error();
  }

  std::string error_text() const override {
    return context_.first_error == cudaSuccess ? "" : cudaGetErrorString(context_.first_error);
  }

  CudaContext& context() { return context_; }

 private:
  KernelError error() const {
    switch (context_.first_error) {
      case cudaSuccess:
        return KernelError::kOk;
      case cudaErrorMemoryAllocation:
        return KernelError::kOutOfMemory;
      case cudaErrorNotSupported:
        return KernelError::kUnsupported;
      default:
        return KernelError::kDeviceLost;
    }
  }

  std::string name_;
  size_t total_bytes_ = 0;
  CudaContext context_;
};

std::string reason_against() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) return "no NVIDIA driver (or one older than CUDA 13) is loaded";
  if (error != cudaSuccess) return cudaGetErrorString(error);
  if (count == 0) return "no NVIDIA GPU is visible";
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) {
    return "the GPU does not answer";
  }
  if (major == kRequiredMajor) return "";
  return "the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
         "; the kernels are built for " + std::to_string(kRequiredMajor) + ".0 (Hopper)";
}

}  // namespace

bool cuda_available(std::string* why_not) {
  const std::string reason = reason_against();
  if (why_not != nullptr) *why_not = reason;
  return reason.empty();
}

std::unique_ptr<Device> make_cuda_device() {
  if (!cuda_available(nullptr)) return nullptr;
  auto device = std::make_unique<CudaDevice>();
  if (!device->init()) return nullptr;
  return device;
}

std::unique_ptr<Ops> make_cuda_ops(Device& device, DType activations) {
  return std::make_unique<CudaOps>(static_cast<CudaDevice&>(device).context(), activations);
}

int64_t cuda_free_bytes() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
}

}  // namespace assay
