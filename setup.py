"""What pyproject.toml cannot say yet without a warning: the extension, which may be left out."""

from setuptools import Extension, setup

# optional: without a compiler Standpipe is the same, and restores at two thirds of the speed
setup(
    ext_modules=[
        Extension("standpipe.data._quick", ["src/standpipe/data/_quick.c"], optional=True),
    ]
)
