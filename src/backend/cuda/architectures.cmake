# carole_cuda_architectures(VERSION OUT): the GPUs for which a release is compiled with this version of the CUDA toolkit. The
# result runs on every GPU since Turing, and with CUDA 12 since Volta. GPUs of a generation share the code of its first GPU; 100
# is Blackwell in data centers (B200), 120 Blackwell elsewhere. The driver compiles the PTX for later generations.
function(carole_cuda_architectures version out)
  set(architectures 75-real 80-real 90)
  if(version VERSION_LESS 13)
    list(PREPEND architectures 70-real)
  endif()
  if(version VERSION_GREATER_EQUAL 12.8)
    list(APPEND architectures 100-real 120)
  endif()
  set(${out} ${architectures} PARENT_SCOPE)
endfunction()
