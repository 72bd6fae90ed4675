"The package, as settings.ini describes it."

from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords=cfg["keywords"],
    author=cfg["author"],
    author_email=cfg["author_email"],
    license="Apache-2.0",
    packages=find_packages(include=["vssl_nb", "vssl_nb.*"]),
    package_data={"": ["py.typed", "*.csv", "*.html", "*.md"]},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require={name: cfg[f"{name}_requirements"].split() for name in ("dev", "hf", "timm")},
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"],
    },
    zip_safe=False,
)
