"""What pyproject.toml cannot say yet without a warning: the extension, which may be left out."""

from setuptools import Extension, setup

# optional: without a compiler Standpipe is the same, and its restores take longer
setup(
    ext_modules=[
        Extension("standpipe.data._compiled", ["src/standpipe/data/_compiled.c"], optional=True),
    ]
)
