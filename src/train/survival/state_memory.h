// Puts what a caller makes into the memory of a SurvivingState.
#pragma once

#include "src/backend/host/scoped_allocator.h"
#include "src/train/survival/surviving_state.h"

namespace carole::train {

// Returns make(). Memory that `make` allocates on a host backend comes from `state`. `state` may be
// null; then nothing is special.
template <typename Make>
auto MakeInStateMemory(SurvivingState* state, const Backend& backend, const Make& make) {
  if (state == nullptr || backend.has_own_memory()) return make();
  const host::ScopedAllocator allocator([state](size_t bytes) { return state->Allocate(bytes); });
  return make();
}

}  // namespace carole::train
