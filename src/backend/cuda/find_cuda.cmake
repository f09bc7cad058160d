# Sets CAROLE_HAS_CUDA if the CUDA compiler, cuDNN 9 and the headers of cudnn-frontend (`./run` downloads them) are found.
# Sets CAROLE_HAS_NCCL if NCCL is found, too.
set(CAROLE_HAS_CUDA OFF)
set(CAROLE_HAS_NCCL OFF)
if(NOT CAROLE_WITH_CUDA)
  return()
endif()
include(CheckLanguage)
find_package(CUDAToolkit 12 QUIET)
if(NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})  # the toolkit's compiler need not be in PATH
endif()
check_language(CUDA)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CAROLE_DEPS}/cudnn-frontend/include)
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
  # The result runs on every GPU since Turing, and with CUDA 12 since Volta. GPUs of a generation share the code of its first
  # GPU; the driver compiles the PTX for later generations. Setting CUDAARCHS in the environment, for instance to 90, makes
  # development builds faster.
  if(NOT CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
    if(CUDAToolkit_VERSION VERSION_LESS 13)
      list(PREPEND CMAKE_CUDA_ARCHITECTURES 70-real)
    endif()
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 120)
    endif()
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CAROLE_HAS_CUDA ON)
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    set(CAROLE_HAS_NCCL ON)
  else()
    message(STATUS "NCCL: not found, training on several GPUs is disabled: header ${NCCL_INCLUDE_DIR}, library ${NCCL_LIBRARY}")
  endif()
else()
  message(STATUS "CUDA: disabled, something was not found: CUDA compiler ${CMAKE_CUDA_COMPILER}, cuDNN ${CUDNN_LIBRARY}, "
    "cudnn-frontend ${CUDNN_FRONTEND_INCLUDE_DIR}")
endif()
