// <thrust/iterator/zip_iterator.h> on the CPU: its tuples alone.
#pragma once

#include <thrust/tuple.h>
