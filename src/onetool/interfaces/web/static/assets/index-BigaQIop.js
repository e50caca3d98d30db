<<<<<<<< HEAD:src/onetool/interfaces/web/static/assets/index-BwPEuORz.js
const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=["./start-B8YxTsWK.js","./base-BqDyo9zj.js","./link-Btbc8Ulp.js","./base-D9SAegW_.css"])))=>i.map(i=>d[i]);
import{n as e,t}from"./link-Btbc8Ulp.js";var n=e(),{start:r}=await t(async()=>{let{start:e}=await import(`./start-B8YxTsWK.js`);return{start:e}},__vite__mapDeps([0,1,2,3]),import.meta.url);await r(n);
========
const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=["./start-B5Tl1xVH.js","./base-DQab-H-n.js","./link-Btbc8Ulp.js","./base-C8CKsdPc.css"])))=>i.map(i=>d[i]);
import{n as e,t}from"./link-Btbc8Ulp.js";var n=e(),{start:r}=await t(async()=>{let{start:e}=await import(`./start-B5Tl1xVH.js`);return{start:e}},__vite__mapDeps([0,1,2,3]),import.meta.url);await r(n);
>>>>>>>> p47f:src/onetool/interfaces/web/static/assets/index-BigaQIop.js
