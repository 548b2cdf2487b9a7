// Fuzz driver of the safetensors reader. With clang: -fsanitize=fuzzer,address; the unit test runs the corpus.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto entries = assay::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!entries.ok()) return 0;
  for (const assay::TensorEntry& entry : *entries) {
    if (entry.offset > size || entry.bytes > size - entry.offset) std::abort();  // every tensor lies in the file
  }
  return 0;
}
