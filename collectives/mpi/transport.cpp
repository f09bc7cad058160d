#include "collectives/mpi/transport.h"

#include <climits>

#include "src/core/check.h"

namespace carole::collectives {

void CheckMpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw CommError(fmt::format("[mpi] {}: failed: got {}, want MPI_SUCCESS", call, text));
}

size_t MpiTransport::FreeEntry() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) return i;
  }
  requests_.push_back(MPI_REQUEST_NULL);
  return requests_.size() - 1;
}

Transport::Request MpiTransport::StartSend(int peer, Channel channel,
                                           std::span<const std::byte> data) {
  CAROLE_CHECK(data.size() <= INT_MAX, "message of {} bytes", data.size());
  const size_t entry = FreeEntry();
  CAROLE_MPI(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE, peer,
                       static_cast<int>(channel), comm_, &requests_[entry]));
  return entry;
}

Transport::Request MpiTransport::StartReceive(int peer, Channel channel,
                                              std::span<std::byte> data) {
  CAROLE_CHECK(data.size() <= INT_MAX, "message of {} bytes", data.size());
  const size_t entry = FreeEntry();
  CAROLE_MPI(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_BYTE, peer,
                       static_cast<int>(channel), comm_, &requests_[entry]));
  return entry;
}

bool MpiTransport::Test(Request request) {
  int is_complete = 0;
  CAROLE_MPI(MPI_Test(&requests_[request], &is_complete, MPI_STATUS_IGNORE));
  return is_complete != 0;
}

// Ignores errors: the operation has failed already, and nothing more can be done about it.
void MpiTransport::Cancel(Request request) {
  if (requests_[request] == MPI_REQUEST_NULL) return;
  MPI_Cancel(&requests_[request]);
  MPI_Request_free(&requests_[request]);
}

}  // namespace carole::collectives
