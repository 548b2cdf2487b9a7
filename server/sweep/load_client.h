// What a level needs of a protocol: send one request, hand everything that arrives to its recorder.
//
// Threads: the io_context's only thread. Errors: each request ends in a TransferEnd; nothing throws.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "server/sweep/request_factory.h"
#include "server/sweep/stream_recorder.h"
#include "server/sweep/transfer.h"

namespace assay::sweep {

class LoadClient {
 public:
  virtual ~LoadClient() = default;
  // `request` and `recorder` outlive the coroutine.
  virtual boost::asio::awaitable<TransferEnd> send(const LoadRequest& request, double timeout_s, StreamRecorder& recorder) = 0;
};

}  // namespace assay::sweep
