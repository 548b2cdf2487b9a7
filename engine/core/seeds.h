// Where a sequence's random numbers come from. The seed of a sequence and the position of a token decide its random
// number; batch, time and neighbours do not.
//
//   sequence seed = mix(mix(request seed) + index)    index: 0 <= index < num_sequences
//   request seed  = SamplingParams::seed, else mix(mix(engine seed) + number of the request since start)
//   engine seed   = EngineConfig::seed, else from the system's random device
//
// mix is the finaliser of SplitMix64 on its golden-ratio step: a bijection, so distinct inputs give distinct seeds.
// Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>

namespace assay {

constexpr uint64_t mix_seed(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// The `index`-th seed of the family that `seed` names.
constexpr uint64_t derived_seed(uint64_t seed, uint64_t index) {
  return mix_seed(mix_seed(seed) + index);
}

}  // namespace assay
