i=0
for r in 1 2 3 4 5 6 7 8; do
  phoenix submit --as alice -N 1 --exclusive -t 20s --wrap 'sleep 9' 
  phoenix submit --as mona -N 5 --exclusive -t 30s --wrap 'sleep 8' 
  phoenix submit --as alice -c 2 -a 1-3 -t 10s --wrap 'sleep 4' 
  sleep 7
done
