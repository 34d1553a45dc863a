"""The project whose jobs are measured: Django as it comes, on DATABASE_URL."""

import environ

env = environ.Env()
DATABASES = {"default": {**env.db_url("DATABASE_URL"), "NAME": "jobqueue_bench"}}
INSTALLED_APPS = ["django_jobqueue", "benchmarks"]
SECRET_KEY = "not a secret: nothing but benchmarks uses it"
USE_TZ = True
