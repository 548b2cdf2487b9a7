// The life of one connection: requests in, replies out, in order.
//
// Threads: the connection's strand; handlers go to the worker pools.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <memory>
#include <string>

#include "server/http/connection.h"
#include "server/http/request_body.h"
#include "server/http/request_reader.h"
#include "server/http/site.h"

namespace assay::http {

// What all sessions of a server share.
struct SessionContext {
  const Site& site;
  const Limits& limits;
  asio::thread_pool& workers;       // handlers
  asio::thread_pool& large_worker;  // handlers of large bodies, so that these never hold up small ones
  BodyBudget& bodies;
  std::atomic<int>& active_requests;
  std::atomic<bool>& closing;       // every reply announces the end of its connection
};

// Runs until the connection ends; takes it over.
asio::awaitable<void> run_session(std::unique_ptr<Connection> connection, std::string peer, SessionContext context);

}  // namespace assay::http
