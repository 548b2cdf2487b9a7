// The load over assay.v1.Inference: one channel, one call for each request.
//
// Owns: the channel. Threads: send as LoadClient; gRPC's own threads only read the clock and post to the io_context.
// Errors: as LoadClient. Certificates are verified against the system's authorities.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>

#include "server/sweep/http_client.h"
#include "server/sweep/load_client.h"

namespace assay::sweep {

class GrpcClient final : public LoadClient {
 public:
  // `address`: HOST:PORT.
  GrpcClient(boost::asio::io_context& io, const std::string& address, bool tls, const std::string& api_key,
             const RunClock& clock);
  ~GrpcClient() override;

  // The body of `request` is an encoded assay.v1.GenerateRequest.
  boost::asio::awaitable<TransferEnd> send(const LoadRequest& request, double timeout_s, StreamRecorder& recorder) override;

 private:
  struct Channel;

  boost::asio::io_context& io_;
  const RunClock& clock_;
  std::unique_ptr<Channel> channel_;
};

}  // namespace assay::sweep
