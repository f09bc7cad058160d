// Runs independent pieces of rank-local work on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace carole {

// Calls work(i) once for each i in [0, count) on `threads` new threads; 0 means one for each core.
// The threads take the indices in ascending order. Returns when all calls have ended.
//
// `tick` may be empty. It is called on the calling thread about twice a second, and once at the end
// of successful work; a progress display uses it.
//
// If a call of `work` throws, no new calls start. After the running ones have ended, the exception
// of the lowest index is rethrown here.
void ParallelFor(int64_t count, int threads, const std::function<void(int64_t)>& work,
                 const std::function<void()>& tick = {});

}  // namespace carole
