// Transport over MPI messages. Only for collectives/mpi, because this header includes mpi.h.
#pragma once

#include <mpi.h>

#include <vector>

#include "collectives/transport/transport.h"

namespace carole::collectives {

// Throws CommError with MPI's error text unless `status` is MPI_SUCCESS.
void CheckMpi(int status, const char* call);

// Checks a call of MPI. The communicators return error codes (MPI_ERRORS_RETURN).
#define CAROLE_MPI(call) ::carole::collectives::CheckMpi((call), #call)

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}

  Request StartSend(int peer, Channel channel, std::span<const std::byte> data) override;
  Request StartReceive(int peer, Channel channel, std::span<std::byte> data) override;
  bool Test(Request request) override;
  void Cancel(Request request) override;

 private:
  size_t FreeEntry();

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;  // by Request; MPI_REQUEST_NULL if the entry is free
};

}  // namespace carole::collectives
