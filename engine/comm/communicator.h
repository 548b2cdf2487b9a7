// How the ranks of one model talk. A model holds one and does not know which kind.
//
// Threads: each rank calls its own communicator, from one thread; collective calls are made by all ranks in the same
// order.
#pragma once

#include <memory>

#include "kernels/core/tensor.h"

namespace assay {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank's `tensor` becomes the sum over ranks, added in rank order.
  virtual void all_reduce(Tensor tensor) = 0;
};

// A world of one.
std::unique_ptr<Communicator> make_single_communicator();

}  // namespace assay
