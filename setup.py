"""What pyproject.toml cannot say yet without a warning: the extension, which may be left out."""

from setuptools import Extension, setup

# optional: without a compiler Standpipe is the same, and its restores take longer
setup(
    ext_modules=[
        Extension(
            "standpipe.data.encoding._native",
            ["src/standpipe/data/encoding/_native.c"],
            optional=True,
        ),
    ]
)
