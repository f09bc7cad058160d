"""Runs carole and TFLite's interpreter."""
import subprocess


def run_carole(program, *arguments, code=0):
    """Runs the program, which must end with this exit code. Returns what it printed."""
    result = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert result.returncode == code, (arguments, result.returncode, result.stdout, result.stderr)
    return result.stdout + result.stderr


def run_tflite(interpreter, inputs):
    """Runs a net with one input and one output. Returns the output for each array of `inputs`."""
    interpreter.allocate_tensors()
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    outputs = []
    for values in inputs:
        interpreter.set_tensor(source["index"], values.reshape(source["shape"]))
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result["index"]))
    return outputs
