// A client that says exactly the bytes a test wants, over a blocking socket.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace assay::testing {

class RawClient {
 public:
  explicit RawClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  RawClient(RawClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  ~RawClient() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  bool send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t size = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (size <= 0) return false;
      sent += static_cast<size_t>(size);
    }
    return true;
  }

  // Reads until `text` was seen, the end, or `timeout_ms` of silence; gives everything read by this call.
  std::string read_until(const std::string& text, int timeout_ms = 5000) {
    std::string all;
    char buffer[4096];
    while (text.empty() || all.find(text) == std::string::npos) {
      pollfd entry{socket_, POLLIN, 0};
      if (::poll(&entry, 1, timeout_ms) <= 0) break;
      const ssize_t size = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (size <= 0) break;
      all.append(buffer, static_cast<size_t>(size));
    }
    return all;
  }
  std::string read_to_end(int timeout_ms = 5000) { return read_until("", timeout_ms); }

 private:
  int socket_;
  bool connected_ = false;
};

inline size_t count(const std::string& text, const std::string& part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++number;
  return number;
}

}  // namespace assay::testing
